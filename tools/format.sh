#!/usr/bin/env bash
# Formats the C++ sources with clang-format 14 (another version formats differently).
#   tools/format.sh [FILE...]           rewrites the files, by default all of src, tests, bench
#   tools/format.sh --check [FILE...]   changes nothing; names what it would, exits with 1 if any
set -euo pipefail
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$root"

check=''
if [[ ${1:-} == --check ]]; then
  check=1
  shift
fi
format="$(command -v clang-format-14 || command -v clang-format || true)"
if [[ -z $format || $("$format" --version) != *'version 14.'* ]]; then
  echo 'error: clang-format 14 is not here; fix: apt-get install clang-format (Debian 12)' >&2
  exit 1
fi

files=("$@")
folders=()
if ((${#files[@]} == 0)); then
  for folder in src tests bench; do if [[ -d $folder ]]; then folders+=("$folder"); fi; done
  mapfile -t files < <(find "${folders[@]}" -type f \
    \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) | sort)
fi
if ((${#files[@]} == 0)); then exit 0; fi
if [[ -z $check ]]; then
  "$format" -i "${files[@]}"
  exit 0
fi
status=0
for file in "${files[@]}"; do
  if ! "$format" "$file" | cmp -s - "$file"; then
    echo "$file: not as clang-format would have it; fix: tools/format.sh $file"
    status=1
  fi
done
exit $status
