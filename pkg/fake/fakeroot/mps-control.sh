#!/bin/sh
# nvidia-cuda-mps-control of a fake machine. With -f it is the daemon, until "quit"
# or SIGTERM; without, it sends the commands on its standard input to the daemon and
# prints the answers, as the real one does.
#
# The real daemon has a socket "control" in its pipe directory. This one has a FIFO
# of that name for requests, "reply" for the answers, and "control_lock", which
# holds one line while no client is at work. The daemon has all open on both sides,
# so that nobody waits for another to come. A client needs no right to write to the
# folder.
pipe=${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}
log=${CUDA_MPS_LOG_DIRECTORY:-/var/log/nvidia-mps}

note() {
	echo "[Control $$] $*" >>"$log/control.log"
}

finish() {
	rm -f "$pipe/control" "$pipe/control_lock" "$pipe/reply" "$pipe/nvidia-cuda-mps-control.pid"
	note "Exiting"
	exit 0
}

# obey answers a command with lines that begin with the request's name, the last
# with nothing else.
obey() {
	name=$1
	shift
	note "Cmd:$*"
	case "${1-}" in
	get_server_list | quit) ;;
	get_default_active_thread_percentage) echo "$name $percent.0" ;;
	set_default_active_thread_percentage)
		case "${2-}" in
		[1-9] | [1-9][0-9] | 100)
			percent=$2
			echo "$name $percent.0"
			;;
		*) echo "$name Invalid percentage" ;;
		esac
		;;
	*) echo "$name Unrecognized command: $*" ;;
	esac >&8
	echo "$name" >&8
	[ "${1-}" != quit ] || finish
}

serve() {
	mkdir -p "$pipe" "$log" || exit 1
	rm -f "$pipe/control" "$pipe/.control" "$pipe/control_lock" "$pipe/reply"
	mkfifo "$pipe/.control" "$pipe/control_lock" "$pipe/reply" || exit 1
	chmod 666 "$pipe/.control" "$pipe/control_lock" "$pipe/reply"
	exec 6<>"$pipe/control_lock" 7<>"$pipe/.control" 8<>"$pipe/reply" || exit 1
	echo free >&6
	percent=100
	trap finish TERM INT
	note "Starting control daemon using socket $pipe/control"
	note "CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-}"
	echo $$ >"$pipe/nvidia-cuda-mps-control.pid"
	# Whoever sees "control" finds all the rest.
	mv "$pipe/.control" "$pipe/control"
	# A command's words are arguments, and no patterns.
	set -f
	while :; do
		# shellcheck disable=SC2086
		! read -r name command <&7 || obey "$name" $command
	done
}

missing() {
	echo "Cannot find MPS control daemon process"
	exit 1
}

ask() {
	for file in control control_lock reply; do
		[ -p "$pipe/$file" ] || missing
	done
	exec 6<>"$pipe/control_lock" 7<>"$pipe/control" 8<>"$pipe/reply" || missing
	read -r turn <&6
	trap 'echo "$turn" >&6' EXIT
	trap 'exit 1' TERM INT
	count=0
	while read -r command; do
		count=$((count + 1))
		echo "$$-$count $command" >&7
		while read -r name answer <&8; do
			# Another client may have gone without its answer.
			[ "$name" = "$$-$count" ] || continue
			[ -n "$answer" ] || break
			echo "$answer"
		done
	done
}

case "${1-}" in
-f)
	case "${2-}" in
	"" | -multiuser-server) serve ;;
	*)
		echo "Unrecognized option: $2"
		exit 1
		;;
	esac
	;;
"") ask ;;
*)
	echo "nvidia-cuda-mps-control of a fake GPU knows only -f and no argument, not: $*" >&2
	exit 2
	;;
esac
