// Package notsupported implements go-nvml's interfaces with calls that are not supported.
// A fake embeds them and overrides what it implements.
package notsupported

import (
	"reflect"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// The mocks of go-nvml panic on a call that nobody implemented. Here every such
// call returns zero values and ERROR_NOT_SUPPORTED. A type that embeds one
// overrides the calls that it implements, so the mock's record of calls, which grows
// with every call, has only those that are not supported.
var (
	Device          = notSupported(&mock.Device{})
	GPUInstance     = notSupported(&mock.GpuInstance{})
	ComputeInstance = notSupported(&mock.ComputeInstance{})
	EventSet        = notSupported(&mock.EventSet{})
)

var returnType = reflect.TypeFor[nvml.Return]()

// notSupported fills every function of a mock that is nil.
func notSupported[T any](m *T) *T {
	fillFunctions(m, func(_ string, signature reflect.Type) func([]reflect.Value) []reflect.Value {
		return func([]reflect.Value) []reflect.Value { return answer(signature, nvml.ERROR_NOT_SUPPORTED) }
	})
	return m
}

// fillFunctions sets each nil field NameFunc of a mock to what make gives for the
// method Name.
func fillFunctions[T any](m *T, make func(method string, signature reflect.Type) func([]reflect.Value) []reflect.Value) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		method, ok := strings.CutSuffix(field.Name, "Func")
		if !ok || field.Type.Kind() != reflect.Func || !v.Field(i).IsNil() {
			continue
		}
		v.Field(i).Set(reflect.MakeFunc(field.Type, make(method, field.Type)))
	}
}

// answer are zero results, with the code wherever the function returns one.
func answer(signature reflect.Type, code nvml.Return) []reflect.Value {
	results := make([]reflect.Value, signature.NumOut())
	for i := range results {
		results[i] = reflect.Zero(signature.Out(i))
		if signature.Out(i) == returnType {
			results[i] = reflect.ValueOf(code)
		}
	}
	return results
}

// forwarders are the prefixes of library functions that take a handle and do
// what the handle's method does: nvml.DeviceGetName(d) is d.GetName().
var forwarders = []struct {
	prefix string
	handle reflect.Type
}{
	{"Device", reflect.TypeFor[nvml.Device]()},
	{"GpuInstance", reflect.TypeFor[nvml.GpuInstance]()},
	{"ComputeInstance", reflect.TypeFor[nvml.ComputeInstance]()},
	{"EventSet", reflect.TypeFor[nvml.EventSet]()},
}

// Interface is the library's base: functions of a handle go to its
// method, all others are not supported.
var Interface = func() *mock.Interface {
	m := &mock.Interface{}
	fillFunctions(m, func(method string, signature reflect.Type) func([]reflect.Value) []reflect.Value {
		for _, f := range forwarders {
			name, ok := strings.CutPrefix(method, f.prefix)
			if !ok || signature.NumIn() == 0 || signature.In(0) != f.handle {
				continue
			}
			if _, ok := f.handle.MethodByName(name); !ok {
				continue
			}
			return func(args []reflect.Value) []reflect.Value {
				if args[0].IsNil() {
					return answer(signature, nvml.ERROR_INVALID_ARGUMENT)
				}
				return args[0].MethodByName(name).Call(args[1:])
			}
		}
		return func([]reflect.Value) []reflect.Value { return answer(signature, nvml.ERROR_NOT_SUPPORTED) }
	})
	return m
}()

// Unfakeable are the C functions that go-nvml reaches through concrete structs
// (GetGpuFabricInfoV().V2() and the like), which no fake can stand behind. They are
// reported missing from every machine's library.
var Unfakeable = func() map[string]bool {
	symbols := map[string]bool{}
	for _, f := range forwarders {
		for i := range f.handle.NumMethod() {
			m := f.handle.Method(i)
			if n := m.Type.NumOut(); n > 0 && m.Type.Out(n-1) == returnType {
				continue
			}
			symbols["nvml"+f.prefix+m.Name] = true
		}
	}
	return symbols
}()
