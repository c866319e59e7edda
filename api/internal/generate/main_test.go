package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreUpToDate(t *testing.T) {
	root := "../../.."
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the types say; run hack/generate", name)
		}
	}
}
