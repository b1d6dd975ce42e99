#!/bin/sh
# The part of inside.sh that is run in Wine's Linux: a display, the command, and the end of Wine.
cd "$PROJECT"
Xvfb :7 -screen 0 1280x1024x24 >/dev/null 2>&1 &
python() {
    # Wine gives Python a file as standard output that it cannot use; a pipe works.
    { wine "$TOUCHLINE_WINDOWS/python/python.exe" "$@" </dev/null 2>&1; echo $? >/tmp/.status; } | cat
    return "$(cat /tmp/.status)"
}
wineserver() {
    /usr/lib/x86_64-linux-gnu/wine/wineserver "$@"
}
set_up_prefix() {
    wineboot --init
    wineserver -w # until the registry is written
}
status=0
"$@" || status=$?
wineserver -k # the rest ends with the namespace
exit "$status"
