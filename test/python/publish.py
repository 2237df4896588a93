"""For tests: a publisher that does what lines of JSON on standard input say, [method, [arguments],
{options}], and answers each with a line: the number of the next batch, or the error. Its argument is JSON of options.
"""

import json
import sys

from homing import HomingError, KvEventPublisher


def answer(publisher, name, arguments, options):
    try:
        if name == "stats":
            return publisher.stats._asdict()
        if name == "batch":
            with publisher.batch():
                for each in arguments:
                    getattr(publisher, each[0])(*each[1], **each[2])
        else:
            getattr(publisher, name)(*arguments, **options)
        return publisher.next_sequence
    except HomingError as error:
        return {"name": error.name, "message": error.message}


def main(options):
    publisher = KvEventPublisher(**json.loads(options))
    print(json.dumps([publisher.endpoint, publisher.replay_endpoint]), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(publisher, *json.loads(line))), flush=True)
    publisher.close()


main(sys.argv[1])
