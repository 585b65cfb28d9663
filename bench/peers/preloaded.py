#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Samples of a Python program without its imports, which take longer than the sample.

    preloaded.py serve SOCKET PROGRAM.py      imports PROGRAM, then runs its main() in a fork for each client
    preloaded.py run SOCKET ARGUMENT...       one sample; output and exit status are the fork's
The forks are made before CUDA is started, so that each sample is a process with a context of its own.
"""
import array
import importlib.util
import json
import os
import pathlib
import signal
import socket
import sys
import traceback


def sample(main, words, client, fds):
    """In the fork: `main` with the client's arguments, output and errors."""
    code = 1
    try:
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        sys.argv = words
        code = main() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    client.sendall(bytes([code & 255]))
    os._exit(code & 255)


def serve(place, program):
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking whether there is a GPU must not start CUDA here
    sys.path.insert(0, str(pathlib.Path(program).resolve().parent))
    spec = importlib.util.spec_from_file_location("preloaded_program", program)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    pathlib.Path(place).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        while True:
            client, _ = listener.accept()
            data, ancillary, _, _ = client.recvmsg(1 << 16, socket.CMSG_SPACE(2 * array.array("i").itemsize))
            fds = array.array("i")
            fds.frombytes(ancillary[0][2])
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                sample(module.main, [program, *json.loads(data)], client, fds)
            client.close()
            for fd in fds:
                os.close(fd)


def run(place, words):
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        server.sendmsg([json.dumps(words).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))])
        code = server.recv(1) or b"\1"
        server.recv(1)  # until the fork is gone
        return code[0]


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("serve", "run"):
        sys.exit(__doc__)
    sys.exit(serve(*sys.argv[2:4]) if sys.argv[1] == "serve" else run(sys.argv[2], sys.argv[3:]))
