#!/bin/sh
# A stand-in for SQM's run.sh: `run.sh start|stop [DEVICE]`. What is seen from outside is as with the real one: a queue counts if
# `enabled` is the number 1; whichever has a state file is not started again; a missing rate is a default, 0 is no shaping; what was
# started is stopped by what the state file says; and it ends with 0 whatever tc did. Each call is noted in /run/sqm-calls.
# shellcheck disable=SC2046,SC2086,SC2012 # options are lists of words, and no device has a blank in its name
set -f
states=/var/run/sqm
echo "$*" >>/run/sqm-calls

get() { uci -q get "sqm.$section.$1" || echo "$2"; }

# What CAKE is told of the link below it.
link() {
  case $(get linklayer none) in
    none) return ;;
    atm) echo atm ;;
  esac
  echo overhead "$(get overhead 0)" mpu "$(get tcMPU 0)"
}

start() {
  device=$(get interface '')
  [ -n "$device" ] && [ "${1:-$device}" = "$device" ] || return
  [ "$(get enabled 0)" -eq 1 ] 2>/dev/null || return
  [ ! -e "$states/$device.state" ] || return
  ifb=$(echo "ifb4$device" | cut -c1-15) up=$(get upload 2302) down=$(get download 14698)
  case $(get script piece_of_cake.qos) in
    layer_cake.qos) tins=diffserv3 ;;
    *) tins=besteffort ;;
  esac
  # What comes in has the marks of strangers: they count only where the owner says so.
  [ "$(get squash_ingress 1)" = 0 ] && coming=$tins || coming=besteffort
  mkdir -p $states
  echo "ifb=$ifb" >"$states/$device.state"
  if [ "$up" -ne 0 ]; then
    tc qdisc del dev "$device" root 2>/dev/null
    tc qdisc add dev "$device" root cake bandwidth "$up"kbit $(link) $tins $(get eqdisc_opts '')
  fi
  if [ "$down" -ne 0 ]; then
    ip link add "$ifb" type ifb 2>/dev/null
    ip link set "$ifb" up
    tc qdisc add dev "$ifb" root cake bandwidth "$down"kbit $(link) $coming wash $(get iqdisc_opts '')
    tc qdisc add dev "$device" handle ffff: ingress
    tc filter add dev "$device" parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev "$ifb"
  fi
}

stop() {
  [ -e "$states/$1.state" ] || return
  ifb=$(sed -n s/^ifb=//p "$states/$1.state")
  tc qdisc del dev "$1" ingress 2>/dev/null
  tc qdisc del dev "$1" root 2>/dev/null
  ip link del "$ifb" 2>/dev/null
  rm "$states/$1.state"
}

case $1 in
  start)
    for section in $(uci -q show sqm | sed -n 's/^sqm\.\([^.=]*\)=.*/\1/p'); do start "$2"; done ;;
  stop)
    for device in ${2:-$(ls $states 2>/dev/null | sed -n 's/\.state$//p')}; do stop "$device"; done ;;
esac
exit 0
