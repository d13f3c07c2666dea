"""Judges answers that are a count: {"verifier": "command", "command": "judge.py", "expected": "2", ...} with --allow-commands.

Reads {"case", "answer"} as one line of JSON, and prints {"correct", "detail"}.
"""

import json
import sys

told = json.load(sys.stdin)
answer, expected = told["answer"].strip(), told["case"]["expected"]
detail = "" if answer == expected else f"it is {answer[:80]}, not {expected}"
json.dump({"correct": answer == expected, "detail": detail}, sys.stdout)
