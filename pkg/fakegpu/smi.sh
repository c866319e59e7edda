#!/bin/sh
# nvidia-smi of a fake machine. Like the real one it shows the GPUs whose device
# nodes the container has.
driver=@DRIVER@
cuda=@CUDA@

devices() {
	cat <<'END'
@DEVICES@
END
}

# each calls "$1" for every GPU and MIG device whose device node is here.
each() {
	index=0 shown=no
	devices | {
		while IFS='|' read -r kind number uuid name address memory state; do
			case "$kind" in
			gpu)
				shown=no
				[ -e "/dev/nvidia$number" ] || continue
				shown=yes
				"$1"
				index=$((index + 1))
				;;
			mig)
				[ "$shown" = yes ] && [ -e "/dev/nvidia-caps/nvidia-cap$number" ] && "$1"
				;;
			esac
		done
		if [ "$index" -eq 0 ]; then
			echo "No devices were found"
			exit 6
		fi
	}
}

list() {
	case "$kind" in
	gpu)
		if [ "$state" = lost ]; then
			echo "Unable to determine the device handle for GPU$index: $address: GPU is lost."
		else
			echo "GPU $index: $name (UUID: $uuid)"
		fi
		;;
	mig) printf '  MIG %-15s Device %2s: (UUID: %s)\n' "$name" "$address" "$uuid" ;;
	esac
}

row() {
	[ "$kind" = gpu ] || return 0
	if [ "$state" = lost ]; then
		memory=lost
	else
		memory="${memory}MiB"
	fi
	printf '| %3s  %-46s %-14s %10s |\n' "$index" "$name" "$address" "$memory"
}

case "${1-}" in
-L | --list-gpus)
	each list
	;;
"")
	line='+--------------------------------------------------------------------------------+'
	echo "$line"
	printf '| %-78s |\n' "NVIDIA-SMI $driver    Driver Version: $driver    CUDA Version: $cuda"
	echo "$line"
	each row
	status=$?
	[ "$status" -eq 0 ] && echo "$line"
	exit "$status"
	;;
*)
	echo "nvidia-smi of a fake GPU knows only -L and no argument, not: $*" >&2
	exit 2
	;;
esac
