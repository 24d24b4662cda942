#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds calls of MPI, CUDA, NCCL and CUDA's other libraries whose error nobody looks at: those that stand as a statement.

    tests/checked_calls.py SOURCES

Also cudaMemcpy and cudaMemset, which return before all is there for our streams: runtime::upload and fill wait.
Allowed are cudaGetLastError, which clears an error that was looked at, and (void) with a comment that says why.
"""
import pathlib
import re
import sys

CALL = re.compile(r"\b(?:cuda|cublasLt|cudnn|cusparse|cusparseLt|nccl|nvml|MPI_|MPI_T_|MPIX_)[A-Za-z]\w*\s*\(")
CLEARS = ("cudaGetLastError", "cudaPeekAtLastError")
UNORDERED = re.compile(r"\bcudaMem(?:cpy|set)\s*\(")
# What a checked call is an argument, an operand or the result of.
CONTROL = [
    ("void f() {\n  cudaFree(p);\n}", 1),
    ("for (auto p : all) ncclMemFree(p);", 1),
    ("if (g) {\n} else\n  MPI_Wait(&r, s);", 1),
    ("(void)cublasLtDestroy(h);", 1),
    ("destroy([] { MPI_Finalize(); });", 1),
    ("(void)MPI_Abort(c, 1);  // this process ends", 0),
    ("check_cuda(cudaFree(p), \"cudaFree\");", 0),
    ("const cudaError_t e = cudaMalloc(&p, 1);", 0),
    ("return ncclSend(p);", 0),
    ("if (MPI_Cancel(&r) == MPI_SUCCESS) done();", 0),
    ("cudaGetLastError();  // cudaFree(p);", 0),
    ("const char* s = \"; cudaFree(p)\";", 0),
]


def blanked(text, pattern):
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def unchecked(text):
    """(line number, line) of each."""
    lines = text.splitlines()
    code = blanked(blanked(text, r'"(?:\\.|[^"\\\n])*"'), r"//[^\n]*")
    for match in CALL.finditer(code):
        before = code[: match.start()].rstrip()
        number = code.count("\n", 0, match.start())
        dropped = before.endswith("(void)")
        if dropped and "// " in lines[number]:
            continue
        stands_alone = dropped or before[-1:] in (";", "{", "}", ")") or before.endswith("else")
        if stands_alone and match.group().rstrip("( \n") not in CLEARS:
            yield number + 1, lines[number].strip()


def unordered(text):
    code = blanked(blanked(text, r'"(?:\\.|[^"\\\n])*"'), r"//[^\n]*")
    for match in UNORDERED.finditer(code):
        number = code.count("\n", 0, match.start())
        yield number + 1, text.splitlines()[number].strip()


def main():
    wrong = [text for text, count in CONTROL if len(list(unchecked(text))) != count]
    wrong += [t for t, count in (("check_cuda(cudaMemcpy(a, b, 1, kind), c);", 1), ("check_cuda(cudaMemsetAsync(a, 0, 1, s), c);", 0))
              if len(list(unordered(t))) != count]
    if wrong:
        sys.exit("checked_calls: its own control fails:\n" + "\n".join(wrong))
    sources = [p for p in sorted(pathlib.Path(sys.argv[1]).rglob("*")) if p.suffix in {".cpp", ".hpp", ".cu", ".cuh"}]
    calls, found = 0, 0
    for path in sources:
        text = path.read_text(encoding="utf-8")
        calls += len(CALL.findall(text))
        for number, line in unchecked(text):
            found += 1
            print(f"{path}:{number}: nobody looks at this call's error: {line}")
        for number, line in unordered(text):
            found += 1
            print(f"{path}:{number}: returns before our streams may read what it writes; use runtime::upload or fill: {line}")
    print(f"{len(sources)} sources, {calls} places that name a call, {found} wrong")
    sys.exit(1 if found or calls == 0 else 0)


if __name__ == "__main__":
    main()
