package fakegpu

import (
	"fmt"
	"reflect"
	"testing"
)

// fill gives every field that can be set a value, and every list and map an entry.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.SetMapIndex(key, value)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n))
	default:
		if v.CanInt() {
			v.SetInt(int64(*n))
		} else {
			v.SetUint(uint64(*n))
		}
	}
}

// shared lists the lists, maps and pointers that two values have in common.
func shared(path string, a, b reflect.Value) []string {
	var found []string
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() {
				found = append(found, shared(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))...)
			}
		}
	case reflect.Slice:
		if a.Pointer() == b.Pointer() {
			return []string{path}
		}
		found = shared(path+"[0]", a.Index(0), b.Index(0))
	case reflect.Map, reflect.Pointer:
		if a.Pointer() == b.Pointer() {
			return []string{path}
		}
	}
	return found
}

// A field that is forgotten in clone would let a change that fails leave its traces.
func TestCloneIsEqualAndSharesNothing(t *testing.T) {
	var st state
	n := 0
	fill(reflect.ValueOf(&st).Elem(), &n)
	clone := st.clone()
	if !reflect.DeepEqual(&st, clone) {
		t.Errorf("the clone is\n%+v\nwant\n%+v", clone, &st)
	}
	if found := shared("state", reflect.ValueOf(st), reflect.ValueOf(*clone)); len(found) > 0 {
		t.Errorf("the clone shares %v", found)
	}
}
