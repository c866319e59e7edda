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

# find_gpu sets uuid and name to those of the GPU with the UUID or index "$1".
find_gpu() {
	wanted=$1
	gpu=$(devices | {
		index=0
		while IFS='|' read -r kind _ uuid name _ _ state; do
			[ "$kind" = gpu ] || continue
			if [ "$uuid" = "$wanted" ] || [ "$index" = "$wanted" ]; then
				echo "$state|$uuid|$name"
			fi
			index=$((index + 1))
		done
	})
	[ -n "$gpu" ] || return 1
	state=${gpu%%|*} gpu=${gpu#*|}
	uuid=${gpu%%|*} name=${gpu#*|}
	[ "$state" != lost ]
}

slice_name() {
	case "$1" in
	0) echo Default ;;
	1) echo Short ;;
	2) echo Medium ;;
	3) echo Long ;;
	*) return 1 ;;
	esac
}

show_slice() {
	[ "$kind" = gpu ] || return 0
	value=0
	[ ! -r "$slices/$uuid" ] || read -r value <"$slices/$uuid"
	printf '| %3s  %-46s %-25s |\n' "$index" "$name" "$(slice_name "$value")"
}

# compute_policy shows the time slices or sets one. They are files in the machine's
# folder, which only the node's own programs see.
compute_policy() {
	machine=${0%/root/usr/lib/nvidia/nvidia-smi}
	slices=${machine%/root/usr/bin/nvidia-smi}/timeslices
	target='' value='' show=no
	while [ $# -gt 0 ]; do
		case "$1" in
		-l | --list) show=yes ;;
		-i | --id) target=${2-} && shift ;;
		--set-timeslice) value=${2-} && shift ;;
		--set-timeslice=*) value=${1#*=} ;;
		*)
			echo "Invalid combination of input arguments. $1 is not known."
			exit 2
			;;
		esac
		shift
	done
	if [ "$show" = yes ]; then
		each show_slice
		return
	fi
	if ! name_of_slice=$(slice_name "$value"); then
		echo "Invalid timeslice: \"$value\" is not 0 (Default), 1 (Short), 2 (Medium) or 3 (Long)."
		exit 2
	fi
	if ! find_gpu "$target"; then
		echo "No devices were found with the identifier \"$target\"."
		exit 6
	fi
	if [ "$slices" = "$0/timeslices" ]; then
		echo "Unable to set timeslice for GPU $uuid: Insufficient Permissions"
		exit 4
	fi
	mkdir -p "$slices" && echo "$value" >"$slices/.$uuid" && mv "$slices/.$uuid" "$slices/$uuid" || exit 255
	echo "Successfully set timeslice policy for GPU $uuid to $name_of_slice"
}

case "${1-}" in
-L | --list-gpus)
	each list
	;;
compute-policy)
	shift
	compute_policy "$@"
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
	echo "nvidia-smi of a fake GPU knows only -L, compute-policy and no argument, not: $*" >&2
	exit 2
	;;
esac
