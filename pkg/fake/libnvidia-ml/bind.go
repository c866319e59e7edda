package main

import "C"

import (
	"reflect"
	"regexp"
	"strings"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// handleKinds are the C types of handles, the Go types for which they stand, and how the
// names of the functions begin that are methods of those.
var handleKinds = map[string]struct {
	prefix string
	value  reflect.Type
}{
	"nvmlDevice_t":          {"nvmlDevice", reflect.TypeFor[nvml.Device]()},
	"nvmlGpuInstance_t":     {"nvmlGpuInstance", reflect.TypeFor[nvml.GpuInstance]()},
	"nvmlComputeInstance_t": {"nvmlComputeInstance", reflect.TypeFor[nvml.ComputeInstance]()},
	"nvmlEventSet_t":        {"nvmlEventSet", reflect.TypeFor[nvml.EventSet]()},
	"nvmlGpmSample_t":       {"nvmlGpmSample", reflect.TypeFor[nvml.GpmSample]()},
}

// structVersions are what the header wants in the version field of structures: most have
// their size in it. A function with another versioned structure is not supported.
var structVersions = map[reflect.Type]uint32{
	reflect.TypeFor[nvml.PciInfoExt](): nvml.STRUCT_VERSION(nvml.PciInfoExt{}, 1),
	reflect.TypeFor[nvml.Memory_v2]():  nvml.STRUCT_VERSION(nvml.Memory_v2{}, 2),
	reflect.TypeFor[nvml.GpmSupport](): nvml.GPM_SUPPORT_VERSION,
}

func notSupported(arguments) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }

// bind makes the handler of a function. A function that has neither a handwritten handler
// nor a method of its shape is not supported.
func bind(f function) handler {
	if h, ok := byHand[f.name]; ok {
		return h
	}
	b := binding{params: f.params}
	method := b.method(f)
	if method == nil || !b.takes(method.Type) || !b.gives(method.Type) || len(b.params) != b.next {
		return notSupported
	}
	return func(args arguments) nvml.Return { return b.call(method.Index, args) }
}

// binding is how the arguments of a C function become those and the results of a method.
type binding struct {
	params []string
	// next is the first parameter that has no use yet.
	next int
	// receiver is the Go type whose method it is; nil for the library's.
	receiver reflect.Type
	inputs   []func(arguments) (reflect.Value, nvml.Return)
	outputs  []output
}

// output is where a result goes.
type output struct {
	// param is the number of the pointer that must not be null.
	param int
	// check looks at what the caller has put there.
	check func(arguments) nvml.Return
	write func(arguments, reflect.Value) nvml.Return
}

var versionSuffix = regexp.MustCompile(`_v[0-9]+$`)

// method finds a function's method: of what its first parameter stands for, or of the
// library. The version of a function is in the method's name only if two differ.
func (b *binding) method(f function) *reflect.Method {
	names := []string{f.name, versionSuffix.ReplaceAllString(f.name, "")}
	if len(f.params) > 0 {
		if kind, ok := handleKinds[f.params[0]]; ok {
			for _, name := range names {
				name, ours := strings.CutPrefix(name, kind.prefix)
				if m, ok := kind.value.MethodByName(name); ok && ours {
					b.receiver, b.next = kind.value, 1
					return &m
				}
			}
		}
	}
	for _, name := range names {
		if m, ok := reflect.TypeFor[nvml.Interface]().MethodByName(strings.TrimPrefix(name, "nvml")); ok {
			return &m
		}
	}
	return nil
}

// call calls the method and writes its results.
func (b *binding) call(method int, args arguments) nvml.Return {
	receiver := reflect.ValueOf(library)
	if b.receiver != nil {
		value, ret := behind[any](args.pointer(0))
		if ret != nvml.SUCCESS || !reflect.TypeOf(value).Implements(b.receiver) {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		receiver = reflect.ValueOf(value).Convert(b.receiver)
	} else {
		receiver = receiver.Convert(reflect.TypeFor[nvml.Interface]())
	}
	var in []reflect.Value
	for _, input := range b.inputs {
		value, ret := input(args)
		if ret != nvml.SUCCESS {
			return ret
		}
		in = append(in, value)
	}
	for _, o := range b.outputs {
		if args.pointer(o.param) == nil {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		if ret := o.check(args); ret != nvml.SUCCESS {
			return ret
		}
	}
	results := receiver.Method(method).Call(in)
	ret := results[len(b.outputs)].Interface().(nvml.Return)
	for i := 0; i < len(b.outputs) && ret == nvml.SUCCESS; i++ {
		ret = b.outputs[i].write(args, results[i])
	}
	return ret
}

// param takes the next parameter.
func (b *binding) param() (number int, cType string) {
	if b.next >= len(b.params) {
		return 0, ""
	}
	b.next++
	return b.next - 1, b.params[b.next-1]
}

// takes finds for each parameter of the method what it is made of.
func (b *binding) takes(method reflect.Type) bool {
	for i := range method.NumIn() {
		number, cType := b.param()
		input := inputOf(method.In(i), number, cType)
		if input == nil {
			return false
		}
		b.inputs = append(b.inputs, input)
	}
	return true
}

// inputOf makes a value of a Go type of an argument.
func inputOf(t reflect.Type, number int, cType string) func(arguments) (reflect.Value, nvml.Return) {
	kind, isHandle := handleKinds[cType]
	isPointer := strings.HasSuffix(cType, "*")
	switch {
	case isHandle && kind.value == t:
		return func(args arguments) (reflect.Value, nvml.Return) {
			value, ret := behind[any](args.pointer(number))
			if ret != nvml.SUCCESS || !reflect.TypeOf(value).Implements(t) {
				return reflect.Value{}, nvml.ERROR_INVALID_ARGUMENT
			}
			return reflect.ValueOf(value), ret
		}
	case isHandle || cType == "":
		return nil
	case t.Kind() == reflect.String && cType == "const char*":
		return func(args arguments) (reflect.Value, nvml.Return) {
			p := (*C.char)(args.pointer(number))
			if p == nil {
				return reflect.Value{}, nvml.ERROR_INVALID_ARGUMENT
			}
			return reflect.ValueOf(C.GoString(p)), nvml.SUCCESS
		}
	case !isPointer && width(t) > 0:
		return func(args arguments) (reflect.Value, nvml.Return) {
			return numberOf(t, args.number(number)), nvml.SUCCESS
		}
	case t.Kind() == reflect.Pointer && isPointer && checked(t.Elem()):
		return func(args arguments) (reflect.Value, nvml.Return) {
			p := args.pointer(number)
			return reflect.NewAt(t.Elem(), p), checkVersion(t.Elem(), p)
		}
	case t.Kind() == reflect.Pointer && cType == "unsigned int":
		// Where C takes a profile's number, Go takes the profile.
		if _, ok := t.Elem().FieldByName("Id"); !ok {
			return nil
		}
		return func(args arguments) (reflect.Value, nvml.Return) {
			profile := reflect.New(t.Elem())
			profile.Elem().FieldByName("Id").SetUint(args.number(number))
			return profile, nvml.SUCCESS
		}
	}
	return nil
}

// gives finds for each result of the method, before the code, where it goes.
func (b *binding) gives(method reflect.Type) bool {
	last := method.NumOut() - 1
	if last < 0 || method.Out(last) != reflect.TypeFor[nvml.Return]() {
		return false
	}
	for i := range last {
		t := method.Out(i)
		number, cType := b.param()
		if !strings.HasSuffix(cType, "*") {
			return false
		}
		o := output{param: number, check: func(arguments) nvml.Return { return nvml.SUCCESS }}
		switch {
		case t.Kind() == reflect.String && cType == "char*":
			b.next++
			o.write = func(args arguments, value reflect.Value) nvml.Return {
				return writeText(args.pointer(number), args.number(number+1), value.String())
			}
		case t.Kind() == reflect.Slice:
			second, secondType := b.param()
			// A count in front of the list says how much room there is.
			if cType == "unsigned int*" && strings.HasSuffix(secondType, "*") {
				o.write = func(args arguments, value reflect.Value) nvml.Return {
					return writeList(args.pointer(number), args.pointer(second), value, true)
				}
				break
			}
			if secondType != "unsigned int*" {
				return false
			}
			o.param = second
			o.write = func(args arguments, value reflect.Value) nvml.Return {
				return writeList(args.pointer(second), args.pointer(number), value, false)
			}
		case handleKinds[strings.TrimSuffix(cType, "*")].value == t, width(t) > 0 && width(t) == pointedWidth(cType), checked(t):
			o.check = func(args arguments) nvml.Return { return checkVersion(t, args.pointer(number)) }
			o.write = func(args arguments, value reflect.Value) nvml.Return {
				writeValue(args.pointer(number), value)
				return nvml.SUCCESS
			}
		default:
			return false
		}
		b.outputs = append(b.outputs, o)
	}
	return true
}

// width is how many bytes a Go number or truth value has in C, 0 for other types. A Go
// int stands for an int of C's.
func width(t reflect.Type) int {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int32, reflect.Uint32:
		return 4
	case reflect.Int64, reflect.Uint64, reflect.Uint:
		return 8
	}
	return 0
}

// pointedWidth is how many bytes a number has to which a C pointer points.
func pointedWidth(cType string) int {
	if strings.Contains(cType, "long") {
		return 8
	}
	return 4
}

// checked says whether a type is a structure that is laid out as in C, and whose version
// is known if it has one.
func checked(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	if _, known := structVersions[t]; known {
		return true
	}
	for i := range t.NumField() {
		if kind := t.Field(i).Type.Kind(); kind == reflect.Interface || kind == reflect.String || t.Field(i).Name == "Version" {
			return false
		}
	}
	return true
}

// checkVersion checks the version of a structure of the caller's.
func checkVersion(t reflect.Type, p unsafe.Pointer) nvml.Return {
	want, versioned := structVersions[t]
	switch {
	case p == nil:
		return nvml.ERROR_INVALID_ARGUMENT
	case versioned && *(*uint32)(p) != want:
		return nvml.ERROR_ARGUMENT_VERSION_MISMATCH
	}
	return nvml.SUCCESS
}
