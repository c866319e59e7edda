package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Options say how files are read.
type Options struct {
	// Stdin is what "-" stands for.
	Stdin io.Reader
	// Recursive reads the folders in a folder, too.
	Recursive bool
	// Namespace is for objects without one.
	Namespace string
	// PriorityClasses are those that are known beside the files'.
	PriorityClasses []*schedulingv1.PriorityClass
}

// Load reads files, folders and, for "-", standard input. Of a folder it reads what ends
// in .yaml, .yml or .json, as kubectl does. Errors name file, document and line.
func Load(paths []string, options Options) (*Objects, error) {
	o := &Objects{seen: map[string]string{}}
	for _, path := range paths {
		if path == "-" {
			if err := o.read("standard input", options.Stdin, options.Namespace); err != nil {
				return nil, err
			}
			continue
		}
		files, err := filesOf(path, options.Recursive)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := o.readFile(file, options.Namespace); err != nil {
				return nil, err
			}
		}
	}
	o.makePods()
	return o, o.setDefaults(options.PriorityClasses)
}

// filesOf gives the manifests that a path stands for, in the order of their names.
func filesOf(path string, recursive bool) ([]string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file or folder %s", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != path && !recursive:
			return fs.SkipDir
		case !entry.IsDir() && isManifest(name):
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("folder %s has no .yaml, .yml or .json file: name another, or give --recursive for the folders in it", path)
	}
	return files, nil
}

func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func (o *Objects) readFile(path, namespace string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	return errors.Join(o.read(path, file, namespace), file.Close())
}

func (o *Objects) read(name string, from io.Reader, namespace string) error {
	data, err := io.ReadAll(from)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	for _, d := range split(data) {
		raw, err := yaml.YAMLToJSONStrict(d.text)
		if err != nil {
			// Once more, at its place in the file, for the numbers of the lines.
			_, err = yaml.YAMLToJSONStrict(append(bytes.Repeat([]byte("\n"), d.line-1), d.text...))
			return fmt.Errorf("%s, document %d: %w", name, d.number, err)
		}
		where := fmt.Sprintf("%s, document %d (line %d)", name, d.number, d.line)
		if err := o.add(raw, metav1.TypeMeta{}, where, namespace); err != nil {
			return err
		}
	}
	return nil
}

// document is one of a YAML file.
type document struct {
	text []byte
	// number counts from 1, and so does line, the first with something on it.
	number, line int
}

// split cuts a file into documents, without those that hold nothing but comments.
func split(data []byte) []document {
	var documents []document
	current := document{}
	flush := func() {
		if current.line > 0 {
			current.number = len(documents) + 1
			documents = append(documents, current)
		}
		current = document{}
	}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		trimmed := bytes.TrimSpace(text)
		if bytes.HasPrefix(text, []byte("---")) && (len(trimmed) == 3 || text[3] == ' ') {
			flush()
			continue
		}
		if current.line == 0 && (len(trimmed) == 0 || trimmed[0] == '#') {
			continue
		}
		if current.line == 0 {
			current.line = line
		}
		current.text = append(current.text, text...)
	}
	flush()
	return documents
}

// add takes an object, or those of a list. What it lacks of a kind comes from the list.
func (o *Objects) add(raw []byte, listed metav1.TypeMeta, where, namespace string) error {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name         string `json:"name"`
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("%s: this is no Kubernetes object: %w", where, err)
	}
	if head.Kind == "" && head.APIVersion == "" {
		head.TypeMeta = listed
	}
	if head.Kind == "" || head.APIVersion == "" {
		return fmt.Errorf("%s: apiVersion or kind is missing", where)
	}
	if kind, isList := strings.CutSuffix(head.Kind, "List"); isList {
		items := metav1.TypeMeta{APIVersion: head.APIVersion, Kind: kind}
		if kind == "" {
			items = metav1.TypeMeta{}
		}
		for i, item := range head.Items {
			if err := o.add(item, items, fmt.Sprintf("%s, item %d", where, i+1), namespace); err != nil {
				return err
			}
		}
		return nil
	}
	name := head.Metadata.Name
	if name == "" {
		name = head.Metadata.GenerateName
	}
	if !known(head.TypeMeta) {
		o.Ignored = append(o.Ignored, Ignored{Kind: head.Kind, Name: name})
		return nil
	}
	object, err := decode(raw, head.TypeMeta)
	if err != nil {
		return fmt.Errorf("%s: %s %s: %w", where, head.Kind, name, err)
	}
	return o.keep(object, where, namespace)
}

// decode gives the object in the newest version of its API.
func decode(raw []byte, meta metav1.TypeMeta) (runtime.Object, error) {
	gvk := meta.GroupVersionKind()
	object, _, err := strict.Decode(raw, &gvk, nil)
	switch {
	case runtime.IsNotRegisteredError(err):
		return nil, fmt.Errorf("version %s is not known: write it in a version that the API server serves", meta.APIVersion)
	case runtime.IsStrictDecodingError(err):
		return nil, fmt.Errorf("%s: correct or remove what is named", strings.TrimPrefix(err.Error(), "strict decoding error: "))
	case err != nil:
		return nil, err
	}
	return newest(object)
}
