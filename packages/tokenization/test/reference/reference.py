"""What the reference makes of texts: reads one JSON string a line, writes its token ids, separated by spaces.

    python reference.py TOKENIZER_JSON < texts > ids

The reference is the Python package `tokenizers` (the Rust library that engines use). Its version is the first line
of what is written. Special tokens in a text are found; none are added.
"""

import json
import sys

import tokenizers

tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
print(tokenizers.__version__)
for line in sys.stdin:
    encoding = tokenizer.encode(json.loads(line), add_special_tokens=False)
    print(*encoding.ids)
