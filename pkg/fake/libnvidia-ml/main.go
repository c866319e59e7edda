// Command libnvidia-ml is NVML for GPUs that do not exist: a C shared library with
// every function of NVML's header, over the machine of package fakegpu.
//
//	go build -buildmode=c-shared -ldflags '-extldflags -Wl,-soname,libnvidia-ml.so.1'
//
// Whoever loads it reaches fake hardware in the way that real hardware is reached. What
// the machine does not model is not supported, and never ends the program that asks.
//
// A C function for each prototype of the header is generated; it hands its arguments to
// [fakeNVML]. Most functions have the shape of a method of go-nvml's interfaces, and are
// bound to it by its types (bind.go). The others are written by hand.
package main

// #include "library.h"
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

func main() {}

// function is one of NVML's.
type function struct {
	name string
	// params are the C types of its parameters.
	params []string
}

// handler does the work of a function.
type handler func(arguments) nvml.Return

// arguments are those of one call: the C array of the function.
type arguments struct{ first unsafe.Pointer }

func (a arguments) at(i int) unsafe.Pointer { return unsafe.Add(a.first, i*8) }

// number is an argument that is a number; of a shorter type the rest is 0.
func (a arguments) number(i int) uint64 { return *(*uint64)(a.at(i)) }

// pointer is an argument that is a pointer or a handle.
func (a arguments) pointer(i int) unsafe.Pointer { return *(*unsafe.Pointer)(a.at(i)) }

var (
	// bound are the handlers, by the functions' numbers.
	bound = sync.OnceValue(func() []handler {
		handlers := make([]handler, len(functions))
		for i, f := range functions {
			handlers[i] = bind(f)
		}
		return handlers
	})
	// library is the machine's, once it was found.
	library nvml.Interface
	// finding is held while the machine is looked for.
	finding sync.Mutex
	// users counts the calls of nvmlInit that have had no nvmlShutdown.
	users atomic.Int64
)

//export fakeNVML
func fakeNVML(number C.int, args unsafe.Pointer) (code C.int) {
	defer func() {
		// A fault of the fake must not end somebody else's program.
		if recover() != nil {
			code = C.int(nvml.ERROR_UNKNOWN)
		}
	}()
	f := functions[number]
	if users.Load() == 0 && !starts[f.name] {
		return C.int(nvml.ERROR_UNINITIALIZED)
	}
	return C.int(bound()[number](arguments{args}))
}

// starts are the functions that can be called before the library is initialised.
var starts = map[string]bool{"nvmlInit": true, "nvmlInit_v2": true, "nvmlInitWithFlags": true}

// initialise finds the machine at the first time.
func initialise(arguments) nvml.Return {
	finding.Lock()
	defer finding.Unlock()
	if library == nil {
		machine, err := fakegpu.Open(machineDir(C.GoString(C.libraryPath())))
		if err != nil {
			return nvml.ERROR_DRIVER_NOT_LOADED
		}
		library = machine.NVML()
	}
	ret := library.Init()
	if ret == nvml.SUCCESS {
		users.Add(1)
	}
	return ret
}

func shutdown(arguments) nvml.Return {
	ret := library.Shutdown()
	if ret == nvml.SUCCESS {
		users.Add(-1)
	}
	return ret
}
