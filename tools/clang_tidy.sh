#!/usr/bin/env bash
# Runs clang-tidy 14 with the repository's short list (.clang-tidy) over C++ sources of build/dev.
#   tools/clang_tidy.sh            what differs from the main branch or is not committed
#   tools/clang_tidy.sh FILE...    these sources; for a header, the sources that include it
#   tools/clang_tidy.sh --all      everything (minutes)
# Exits with 1 where a check fires.
set -euo pipefail
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$root"

database=build/dev/compile_commands.json
tidy="$(command -v clang-tidy-14 || command -v clang-tidy || true)"
[[ -n $tidy ]] || { echo 'error: no clang-tidy; fix: apt-get install clang-tidy' >&2; exit 1; }
[[ -e $database ]] || { echo "error: no $database; fix: cmake --preset dev" >&2; exit 1; }

changed() {
  git diff --name-only --diff-filter=d "$(git merge-base HEAD main 2>/dev/null || echo HEAD)"
  git ls-files --others --exclude-standard
}
# Sources stay; a header becomes the sources that name it in an #include.
sources_of() {
  local file
  while read -r file; do
    case "$file" in
      *.cc) printf '%s\n' "$file" ;;
      src/*.h) grep -rlF --include='*.cc' "#include \"${file#src/}\"" src tests bench || true ;;
    esac
  done
}
known="$(sed -n 's/^ *"file": "\(.*\)",*$/\1/p' "$database" | sort -u)"
if [[ ${1:-} == --all ]]; then
  wanted="$known"
elif (($# > 0)); then
  wanted="$(printf '%s\n' "$@" | sources_of | xargs -r realpath | sort -u)"
else
  wanted="$(changed | sources_of | xargs -r realpath | sort -u)"
fi
mapfile -t files < <(comm -12 <(printf '%s\n' "$wanted") <(printf '%s\n' "$known"))
echo "clang-tidy: ${#files[@]} files"
if ((${#files[@]} == 0)) || [[ -z ${files[0]} ]]; then exit 0; fi
# The database speaks to gcc: warnings that only gcc knows are no news here.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" "$tidy" --quiet -p build/dev \
  --extra-arg=-Wno-unknown-warning-option 2> >(grep -v ' warnings\? generated\.$' >&2)
