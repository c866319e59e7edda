package main

// #include <stdlib.h>
import "C"

import (
	"sync"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// handles are the pointers that C programs hold, and what each stands for: a device, a
// GPU or compute instance, an event set or a GPM sample. A pointer is to memory of C's
// that nobody reads; it is the same for equal values.
var handles = struct {
	sync.Mutex
	values   map[unsafe.Pointer]any
	pointers map[any]unsafe.Pointer
}{values: map[unsafe.Pointer]any{}, pointers: map[any]unsafe.Pointer{}}

// handleOf is the pointer that stands for a value.
func handleOf(value any) unsafe.Pointer {
	handles.Lock()
	defer handles.Unlock()
	p, ok := handles.pointers[value]
	if !ok {
		p = C.malloc(1)
		handles.values[p], handles.pointers[value] = value, p
	}
	return p
}

// behind is what a pointer stands for: ERROR_INVALID_ARGUMENT if it is not a handle, or
// one of another kind.
func behind[T any](p unsafe.Pointer) (T, nvml.Return) {
	handles.Lock()
	defer handles.Unlock()
	value, ok := handles.values[p].(T)
	if !ok {
		return value, nvml.ERROR_INVALID_ARGUMENT
	}
	return value, nvml.SUCCESS
}

// drop ends a handle.
func drop(p unsafe.Pointer) {
	handles.Lock()
	defer handles.Unlock()
	delete(handles.pointers, handles.values[p])
	delete(handles.values, p)
	C.free(p)
}
