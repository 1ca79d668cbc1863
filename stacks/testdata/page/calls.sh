# Begins the script of a page. It writes each command into the file calls, and runs none: words are
# separated by 0x1f, commands by 0. The files of the directory outputs, if there is one, have the
# stack's outputs.
set -u
PATH=/nonexistent
exec 3>calls
called() { local IFS=$'\x1f'; printf '%s\0' "$*" >&3; }
command_not_found_handle() { called "$@"; }
curl() { echo 198.51.100.7; }
pulumi() {
  called pulumi "$@"
  [ "$1 ${2:-}" = "stack output" ] && [ -d outputs ] || return 0
  if [ -f "outputs/$3" ]; then echo "$(<"outputs/$3")"; else called pulumi no output "$3"; fi
}
