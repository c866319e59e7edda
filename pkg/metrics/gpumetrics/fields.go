package gpumetrics

import (
	"cmp"
	"slices"
	"sync"
)

// field is a known field, and where its value comes from.
type field struct {
	Field
	source
	// standard is true for those of DCGM's default list.
	standard bool
}

// standardField marks a field of DCGM's default list.
func (f field) standardField() field {
	f.standard = true
	return f
}

// perInstance marks a field that MIG partitions have values of.
func (f field) perInstance() field {
	f.PerInstance = true
	return f
}

func gauge(name, help string, s source) field {
	return field{Field: Field{Name: name, Help: help, Type: Gauge}, source: s}
}

func counter(name, help string, s source) field {
	return field{Field: Field{Name: name, Help: help, Type: Counter}, source: s}
}

// text is a label, which a GPU's partitions have with it.
func text(name, help string, s source) field {
	return field{Field: Field{Name: name, Help: help, Type: Label, PerInstance: true}, source: s}
}

// allFields are all known fields, by name.
var allFields = sync.OnceValue(func() []field {
	fields := slices.Concat(
		clockFields(), powerFields(), utilizationFields(), memoryFields(), errorFields(),
		linkFields(), profilingFields(), identityFields(),
	)
	for i := range fields {
		fields[i].OverTime = fields[i].metric != nil || fields[i].field != nil && fields[i].field.rate
	}
	slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.Name, b.Name) })
	return fields
})

// Fields are all known fields, by name.
func Fields() []Field {
	fields := make([]Field, 0, len(allFields()))
	for _, f := range allFields() {
		fields = append(fields, f.Field)
	}
	return fields
}

// Default are the names of those fields of DCGM's default list that are known here, by
// name.
func Default() []string {
	var names []string
	for _, f := range allFields() {
		if f.standard {
			names = append(names, f.Name)
		}
	}
	return names
}

// lookup finds a field by its name.
func lookup(name string) (field, bool) {
	fields := allFields()
	i, ok := slices.BinarySearchFunc(fields, name, func(f field, name string) int { return cmp.Compare(f.Name, name) })
	if !ok {
		return field{}, false
	}
	return fields[i], true
}
