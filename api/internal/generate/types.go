package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
)

// field is a field of a config, with all below it.
type field struct {
	Name    string // in JSON
	Doc     string // one line
	Type    string // object, string, integer or quantity
	Default string
	Min     int64 // Min and Max are 0 for a field without limits
	Max     int64
	Enum    *enum
	Fields  []field
}

// enum is a string type with known values.
type enum struct {
	Name   string
	Doc    string
	Values []string
}

// types are the type declarations of a file, by name.
type types map[string]declaration

type declaration struct {
	doc     string
	markers map[string]string
	expr    ast.Expr
}

func load(path string) (types, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	t := types{}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			continue
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.TypeSpec)
			doc, markers := comment(decl.Doc)
			t[spec.Name.Name] = declaration{doc, markers, spec.Type}
		}
	}
	return t, nil
}

// kind is the named kind as a field without name.
func (t types) kind(name string) (field, error) {
	f := field{Doc: t[name].doc}
	err := t.resolve(&f, ast.NewIdent(name))
	return f, err
}

// resolve fills in what the field's type says.
func (t types) resolve(f *field, expr ast.Expr) error {
	if pointer, ok := expr.(*ast.StarExpr); ok {
		expr = pointer.X
	}
	if selector, ok := expr.(*ast.SelectorExpr); ok && selector.Sel.Name == "Quantity" {
		f.Type = "quantity"
		return nil
	}
	name, ok := expr.(*ast.Ident)
	if !ok {
		return fmt.Errorf("field %s: this generator does not know its type yet", f.Name)
	}
	declared := t[name.Name]
	if values, ok := declared.markers["kubebuilder:validation:Enum"]; ok {
		f.Type = "string"
		f.Enum = &enum{name.Name, declared.doc, strings.Split(values, ";")}
		return nil
	}
	if name.Name == "int32" {
		f.Type = "integer"
		return nil
	}
	object, ok := declared.expr.(*ast.StructType)
	if !ok {
		return fmt.Errorf("field %s: this generator does not know its type %s yet", f.Name, name)
	}
	f.Type = "object"
	for _, member := range object.Fields.List {
		if len(member.Names) == 0 {
			continue // TypeMeta, which every kind has
		}
		child, err := t.field(member)
		if err != nil {
			return err
		}
		f.Fields = append(f.Fields, child)
	}
	return nil
}

func (t types) field(member *ast.Field) (field, error) {
	tag, err := strconv.Unquote(member.Tag.Value)
	if err != nil {
		return field{}, err
	}
	doc, markers := comment(member.Doc)
	name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	f := field{Name: name, Doc: doc, Default: markers["kubebuilder:default"]}
	for marker, limit := range map[string]*int64{"kubebuilder:validation:Minimum": &f.Min, "kubebuilder:validation:Maximum": &f.Max} {
		if text, ok := markers[marker]; ok {
			if *limit, err = strconv.ParseInt(text, 10, 64); err != nil {
				return field{}, fmt.Errorf("field %s: %s: %w", name, marker, err)
			}
		}
	}
	return f, t.resolve(&f, member.Type)
}

// comment splits a comment into its text, as one line, and its markers.
func comment(group *ast.CommentGroup) (doc string, markers map[string]string) {
	var text []string
	markers = map[string]string{}
	for line := range strings.Lines(group.Text()) {
		line = strings.TrimSpace(line)
		if marker, ok := strings.CutPrefix(line, "+"); ok {
			name, value, _ := strings.Cut(marker, "=")
			markers[name] = value
		} else if line != "" {
			text = append(text, line)
		}
	}
	return strings.Join(text, " "), markers
}
