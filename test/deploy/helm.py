"""Lints a chart and installs it, with Helm itself as a library (the package helm-sdkpy has it for Linux).

helm.py LIBRARY CHART KUBECONFIG VALUES RELEASE: prints what Helm says of it as JSON; exits with 1 where it fails.
"""

import ctypes
import json
import sys

library_path, chart, kubeconfig, values, release = sys.argv[1:]
helm = ctypes.CDLL(library_path)
helm.helm_sdkpy_last_error.restype = ctypes.c_char_p


def text(value):
    return value.encode()


def asked(call, *arguments):
    answer = ctypes.c_char_p()
    if call(*arguments, ctypes.byref(answer)) != 0:
        print(helm.helm_sdkpy_last_error().decode(), file=sys.stderr)
        sys.exit(1)
    return json.loads(answer.value)


handle = ctypes.c_ulonglong()
if helm.helm_sdkpy_config_create(text("homing"), text(kubeconfig), text(""), text("{}"), ctypes.byref(handle)) != 0:
    print(helm.helm_sdkpy_last_error().decode(), file=sys.stderr)
    sys.exit(1)
lint = asked(helm.helm_sdkpy_lint, handle, text(chart))
options = json.dumps({"wait": False, "disable_openapi_validation": True})
install = helm.helm_sdkpy_install
asked(install, handle, text(release), text(chart), text(values), text(""), text(options))
print(json.dumps(lint))
