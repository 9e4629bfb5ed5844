#!/bin/sh
# Follows every aircraft through its day, and says where one departs from an
# airport at which it never arrived.
#
#   follow.sh STATE DAY AIRCRAFT FLIGHT FROM TO DEPARTED    one flight
#   follow.sh STATE                   a flight per line on standard input
#
# It answers with one line per flight, so that it can also be a worker. What it
# knows of an aircraft is one file in the folder STATE, read and then written
# without a lock: flights of one aircraft must come one after the other and in
# order, while those of different aircraft need not wait for each other.
#
# It starts no other program, so that it costs little more than the shell.

state=$1
shift

follow() {
    day=$1 aircraft=$2 flight=$3 from=$4 to=$5 departed=$6
    case $aircraft in
        NA | '') echo "$day - $flight $from-$to unknown aircraft"; return ;;
        *[!A-Za-z0-9]*) echo "follow.sh: '$aircraft' is no aircraft" >&2; return 1 ;;
    esac
    case $departed in
        NA | '') echo "$day $aircraft $flight $from-$to cancelled"; return ;;
    esac
    seen_day='' seen_at=''
    if [ -f "$state/$aircraft" ]; then
        read -r seen_day seen_at < "$state/$aircraft"
    fi
    echo "$day $to" > "$state/$aircraft" || return
    if [ "$seen_day" != "$day" ] || [ "$seen_at" = "$from" ]; then
        echo "$day $aircraft $flight $from-$to ok"
    else
        echo "$day $aircraft $flight $from-$to departs from $from, last seen at $seen_at"
    fi
}

if [ ! -d "$state" ]; then
    echo "follow.sh: '$state' is no folder; make it first" >&2
    exit 1
fi
if [ $# -gt 0 ]; then
    follow "$@"
    exit
fi
while read -r day aircraft flight from to departed; do
    follow "$day" "$aircraft" "$flight" "$from" "$to" "$departed" || exit
done
