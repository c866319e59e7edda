package catalog

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"apportion.dev/apportion/pkg/gpu/products"
)

// file is the form of the files of instance types, also of a user's own.
type file struct {
	// Cloud is a word for whose types these are.
	Cloud string `json:"cloud"`
	// Sources are where the facts are from.
	Sources []source `json:"sources,omitempty"`
	// Products are GPU products that the types need and that are not known.
	Products      []products.Product `json:"products,omitempty"`
	InstanceTypes []fileType         `json:"instanceTypes"`
}

// source is a public document.
type source struct {
	Title string `json:"title"`
	URL   string `json:"url"`
}

// fileType is an instance type in a file. Fields are as in [InstanceType].
type fileType struct {
	Name string `json:"name"`
	// Arch is amd64 if empty.
	Arch string `json:"arch,omitempty"`
	// Product is the name of a product.
	Product   string  `json:"product"`
	GPUs      int     `json:"gpus"`
	PCIeRoots [][]int `json:"pcieRoots,omitempty"`
}

//go:embed data/*.yaml
var files embed.FS

func readBuiltin() ([]InstanceType, error) {
	paths, err := fs.Glob(files, "data/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the instance types: %w", err)
	}
	var types []InstanceType
	for _, path := range paths {
		data, err := files.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the instance types in %s: %w", path, err)
		}
		more, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("instance types in %s: %w", path, err)
		}
		types = append(types, more...)
	}
	slices.SortFunc(types, compareTypes)
	return types, nil
}

// LoadFile reads a file of instance types. "-" is not special.
func LoadFile(path string) (types []InstanceType, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the file of instance types: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	types, err = Load(f)
	if err != nil {
		return nil, fmt.Errorf("instance types in %s: %w", path, err)
	}
	return types, nil
}

// Load reads instance types and the products that these bring, as YAML or JSON of the
// form that docs/catalog.md shows. A product in it takes the place of a known one of the
// same name, for these types only. Fields that are not known are an error, as are all
// others that would make a node that cannot be; the error is of one line.
func Load(r io.Reader) ([]InstanceType, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	types, err := parse(data)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(types, compareTypes)
	return types, nil
}

func parse(data []byte) ([]InstanceType, error) {
	var f file
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return nil, oneLine(err)
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	var types []InstanceType
	for _, ft := range f.InstanceTypes {
		product, err := f.product(ft.Product)
		if err == nil {
			err = ft.check()
		}
		if err == nil && slices.ContainsFunc(types, func(t InstanceType) bool { return t.Name == ft.Name }) {
			err = errors.New("it is there twice")
		}
		if err != nil {
			return nil, fmt.Errorf("instance type %q: %w", ft.Name, err)
		}
		types = append(types, InstanceType{
			Name: ft.Name, Cloud: f.Cloud, Arch: cmp.Or(ft.Arch, "amd64"),
			Product: product, GPUs: ft.GPUs, PCIeRoots: ft.PCIeRoots,
		})
	}
	return types, nil
}

// check checks the file but for its instance types.
func (f file) check() error {
	if reasons := validation.IsDNS1123Label(f.Cloud); len(reasons) > 0 {
		return fmt.Errorf("cloud %q: give a word of small letters, digits and dashes for whose instance types these are", f.Cloud)
	}
	if len(f.InstanceTypes) == 0 {
		return errors.New("instanceTypes is empty")
	}
	for i, p := range f.Products {
		if err := p.Validate(); err != nil {
			return fmt.Errorf("product %q: %w", p.Name, oneLine(err))
		}
		if slices.ContainsFunc(f.Products[:i], func(q products.Product) bool { return q.Name == p.Name }) {
			return fmt.Errorf("product %q is there twice", p.Name)
		}
	}
	return nil
}

// product finds a product among the file's own and the known ones.
func (f file) product(name string) (products.Product, error) {
	for _, p := range f.Products {
		if p.Name == name {
			return p, nil
		}
	}
	p, err := products.Lookup(name)
	if err != nil {
		return products.Product{}, fmt.Errorf("%w; another one can be described under products in the same file", err)
	}
	return p, nil
}

func (t fileType) check() error {
	// The name is the value of a label.
	if reasons := validation.IsValidLabelValue(t.Name); t.Name == "" || len(reasons) > 0 {
		return errors.New("the name must be what the label node.kubernetes.io/instance-type of its nodes says")
	}
	if t.Arch != "" && t.Arch != "amd64" && t.Arch != "arm64" {
		return fmt.Errorf("arch %q is unknown; known are: amd64, arm64", t.Arch)
	}
	if t.GPUs < 1 || t.GPUs > MaxGPUs {
		return fmt.Errorf("gpus is %d: give the number of its GPUs, 1 to %d", t.GPUs, MaxGPUs)
	}
	seen := map[int]bool{}
	for _, group := range t.PCIeRoots {
		for _, i := range group {
			if i < 0 || i >= t.GPUs {
				return fmt.Errorf("pcieRoots names GPU %d: the GPUs are 0 to %d", i, t.GPUs-1)
			}
			if seen[i] {
				return fmt.Errorf("pcieRoots names GPU %d twice", i)
			}
			seen[i] = true
		}
	}
	return nil
}

// oneLine is an error in one line.
func oneLine(err error) error {
	return errors.New(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; "))
}
