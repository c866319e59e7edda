package main

import (
	"reflect"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// numberOf is an argument as a Go number.
func numberOf(t reflect.Type, n uint64) reflect.Value {
	value := reflect.New(t).Elem()
	switch {
	case t.Kind() == reflect.Bool:
		value.SetBool(n != 0)
	case value.CanInt() && width(t) == 4:
		value.SetInt(int64(int32(n)))
	case value.CanInt():
		value.SetInt(int64(n))
	default:
		value.SetUint(n)
	}
	return value
}

// writeValue writes a number, a structure or a handle where C wants it.
func writeValue(p unsafe.Pointer, value reflect.Value) {
	switch {
	case value.Kind() == reflect.Struct:
		version, versioned := structVersions[value.Type()]
		reflect.NewAt(value.Type(), p).Elem().Set(value)
		if versioned {
			*(*uint32)(p) = version
		}
	case value.Kind() == reflect.Interface:
		*(*unsafe.Pointer)(p) = handleOf(value.Interface())
	case value.Kind() == reflect.Bool:
		*(*uint32)(p) = 0
		if value.Bool() {
			*(*uint32)(p) = 1
		}
	case width(value.Type()) == 8:
		*(*uint64)(p) = value.Convert(reflect.TypeFor[uint64]()).Uint()
	default:
		*(*uint32)(p) = uint32(value.Convert(reflect.TypeFor[int64]()).Int())
	}
}

// writeText writes a text with the zero that ends it into a buffer of a length.
func writeText(p unsafe.Pointer, length uint64, text string) nvml.Return {
	if length <= uint64(len(text)) {
		return nvml.ERROR_INSUFFICIENT_SIZE
	}
	buffer := unsafe.Slice((*byte)(p), length)
	buffer[copy(buffer, text)] = 0
	return nvml.SUCCESS
}

// writeList writes a list and how long it is. If it is sized, the caller has said how
// much room there is; else a caller without a list only wants the length.
func writeList(count, list unsafe.Pointer, values reflect.Value, sized bool) nvml.Return {
	room := uint64(*(*uint32)(count))
	needed := uint64(values.Len())
	*(*uint32)(count) = uint32(needed)
	switch {
	case sized && room < needed:
		return nvml.ERROR_INSUFFICIENT_SIZE
	case list == nil && (!sized || needed == 0):
		return nvml.SUCCESS
	case list == nil:
		return nvml.ERROR_INVALID_ARGUMENT
	}
	for i := range values.Len() {
		value := values.Index(i)
		size := uintptr(width(value.Type()))
		switch value.Kind() {
		case reflect.Struct:
			size = value.Type().Size()
		case reflect.Interface:
			size = unsafe.Sizeof(list)
		}
		writeValue(unsafe.Add(list, uintptr(i)*size), value)
	}
	return nvml.SUCCESS
}
