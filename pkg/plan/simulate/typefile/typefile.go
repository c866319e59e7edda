// Package typefile turns what a user names as instance types into those that a plan
// needs: types of the catalog, and files with prices, zones, resources, and types of
// their own.
//
// It knows the form of these files and the catalog, and nothing of pods.
package typefile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/catalog"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// Options are what is common to all types.
type Options struct {
	// Zones are those of types for which no file says which.
	Zones []string
	// Policy is that of their node drivers.
	Policy catalog.Policy
}

// entry is an instance type of a file.
type entry struct {
	// Name is that of a type of the catalog, unless Product and GPUs describe another.
	Name string `json:"name"`
	// Price is in any unit, 0 if unknown.
	Price float64  `json:"price,omitempty"`
	Zones []string `json:"zones,omitempty"`
	// Labels are more labels of its nodes, each with the values that are possible.
	Labels map[string]values `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
	// Allocatable is what pods get of its nodes.
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
}

// ownFields are those of an entry that the catalog does not know.
var ownFields = []string{"price", "zones", "labels", "taints", "allocatable"}

// values are one or several.
type values []string

// UnmarshalJSON takes a text or a list of texts.
func (v *values) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		var list []string
		err := yaml.Unmarshal(data, &list)
		*v = list
		return err
	}
	var one string
	err := yaml.Unmarshal(data, &one)
	*v = values{one}
	return err
}

// Load gives the instance types that arguments stand for, in the order of their names
// within each cloud. An argument is the name of a type of the catalog, a pattern of such
// names ("p5*"), or a file. For no argument it is all of the catalog.
func Load(arguments []string, options Options) ([]*simulate.InstanceType, error) {
	if len(arguments) == 0 {
		arguments = []string{"*"}
	}
	var types []catalog.InstanceType
	entries := map[string]entry{}
	for _, argument := range arguments {
		if isFile(argument) {
			own, more, err := readFile(argument)
			if err != nil {
				return nil, fmt.Errorf("instance types in %s: %w", argument, err)
			}
			types = catalog.Merge(types, own)
			for _, e := range more {
				entries[e.Name] = e
			}
			continue
		}
		found, err := find(argument)
		if err != nil {
			return nil, err
		}
		// What a file says of a type stands.
		found = slices.DeleteFunc(found, func(t catalog.InstanceType) bool {
			_, known := entries[t.Name]
			return known
		})
		types = catalog.Merge(types, found)
	}
	result := make([]*simulate.InstanceType, 0, len(types))
	for _, t := range types {
		it, err := instanceType(t, entries[t.Name], options)
		if err != nil {
			return nil, fmt.Errorf("instance type %s: %w", t.Name, err)
		}
		result = append(result, it)
	}
	return result, nil
}

func isFile(argument string) bool {
	switch filepath.Ext(argument) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return strings.ContainsRune(argument, filepath.Separator)
}

// find gives the types of the catalog that a name or a pattern means.
func find(argument string) ([]catalog.InstanceType, error) {
	if !strings.ContainsAny(argument, "*?[") {
		t, err := catalog.Lookup(argument)
		return []catalog.InstanceType{t}, err
	}
	if _, err := path.Match(argument, ""); err != nil {
		return nil, fmt.Errorf("instance types %q: this is no pattern: %w", argument, err)
	}
	found := slices.DeleteFunc(catalog.Types(), func(t catalog.InstanceType) bool {
		matches, _ := path.Match(argument, t.Name) // The pattern is valid.
		return !matches
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("instance types %q: no type has such a name", argument)
	}
	return found, nil
}

// readFile reads a file of instance types: those that it describes, or of which it says
// more than the catalog, and what it says.
func readFile(name string) ([]catalog.InstanceType, []entry, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, errors.New("there is no such file")
	}
	if err != nil {
		return nil, nil, err
	}
	var file map[string]any
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, nil, oneLine(err)
	}
	listed, ok := file["instanceTypes"].([]any)
	if !ok || len(listed) == 0 {
		return nil, nil, errors.New("instanceTypes is missing: list the types there")
	}
	var entries []entry
	var types []catalog.InstanceType
	var described []any
	for i, item := range listed {
		fields, ok := item.(map[string]any)
		if !ok {
			return nil, nil, fmt.Errorf("instance type %d: this is no object with a name", i+1)
		}
		e, isOwn, err := readEntry(fields)
		if err != nil {
			return nil, nil, fmt.Errorf("instance type %d: %w", i+1, err)
		}
		if slices.ContainsFunc(entries, func(other entry) bool { return other.Name == e.Name }) {
			return nil, nil, fmt.Errorf("instance type %s is there twice", e.Name)
		}
		entries = append(entries, e)
		if isOwn {
			described = append(described, fields)
			continue
		}
		t, err := catalog.Lookup(e.Name)
		if err != nil {
			return nil, nil, fmt.Errorf("%w; or describe it by product and gpus", err)
		}
		types = append(types, t)
	}
	own, err := describedTypes(file, described)
	return catalog.Merge(types, own), entries, err
}

// readEntry takes the fields of a file's entry that the catalog does not know out of it,
// and says whether others are left, which describe a type.
func readEntry(fields map[string]any) (e entry, isOwn bool, err error) {
	taken := map[string]any{"name": fields["name"]}
	for _, name := range ownFields {
		if value, is := fields[name]; is {
			taken[name] = value
			delete(fields, name)
		}
	}
	data, err := yaml.Marshal(taken)
	if err != nil {
		return e, false, err
	}
	if err := yaml.UnmarshalStrict(data, &e); err != nil {
		return e, false, oneLine(err)
	}
	switch {
	case e.Name == "":
		return e, false, errors.New("name is missing")
	case e.Price < 0:
		return e, false, fmt.Errorf("%s: price %v is negative", e.Name, e.Price)
	}
	for key, all := range e.Labels {
		if reasons := validation.IsQualifiedName(key); len(reasons) > 0 {
			return e, false, fmt.Errorf("%s: label %q: %s", e.Name, key, strings.Join(reasons, "; "))
		}
		for _, value := range all {
			if reasons := validation.IsValidLabelValue(value); len(reasons) > 0 {
				return e, false, fmt.Errorf("%s: label %s: %q: %s", e.Name, key, value, strings.Join(reasons, "; "))
			}
		}
	}
	return e, len(fields) > 1, nil
}

// describedTypes reads the types that are described, as the catalog reads a file of its
// own.
func describedTypes(file map[string]any, described []any) ([]catalog.InstanceType, error) {
	if len(described) == 0 {
		return nil, nil
	}
	file["instanceTypes"] = described
	if file["cloud"] == nil {
		file["cloud"] = "own"
	}
	data, err := yaml.Marshal(file)
	if err != nil {
		return nil, err
	}
	return catalog.Load(bytes.NewReader(data))
}

// instanceType puts together what catalog and file know.
func instanceType(t catalog.InstanceType, e entry, options Options) (*simulate.InstanceType, error) {
	zones := e.Zones
	if len(zones) == 0 {
		zones = options.Zones
	}
	it, err := t.Allocator(zones, e.Price, options.Policy)
	if err != nil {
		return nil, err
	}
	for key, all := range e.Labels {
		it.Labels[key] = all
	}
	return &simulate.InstanceType{InstanceType: *it, Allocatable: e.Allocatable, Taints: e.Taints}, nil
}

// AddTemplates gives instance types the templates of further drivers, in place of those
// that they have of the same driver and pool. A type that the catalog does not know is
// made of its templates alone, with the zones that are given; one that it knows and that
// is not there was not asked for.
func AddTemplates(types []*simulate.InstanceType, templates map[string][]allocator.Template, zones []string) []*simulate.InstanceType {
	result := slices.Clone(types)
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		i := slices.IndexFunc(result, func(it *simulate.InstanceType) bool { return it.Name == name })
		it := &simulate.InstanceType{}
		it.Name, it.Labels = name, map[string][]string{corev1.LabelInstanceTypeStable: {name}}
		if len(zones) > 0 {
			it.Labels[corev1.LabelTopologyZone] = zones
		}
		if i >= 0 {
			*it = *result[i]
			result[i] = it
		} else if _, err := catalog.Lookup(name); err == nil {
			continue
		} else {
			result = append(result, it)
		}
		it.Templates = slices.DeleteFunc(slices.Clone(it.Templates), func(old allocator.Template) bool {
			return slices.ContainsFunc(templates[name], func(t allocator.Template) bool { return t.Driver == old.Driver && t.Pool == old.Pool })
		})
		it.Templates = append(it.Templates, templates[name]...)
		slices.SortStableFunc(it.Templates, func(a, b allocator.Template) int {
			return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool))
		})
	}
	return result
}

func oneLine(err error) error {
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
