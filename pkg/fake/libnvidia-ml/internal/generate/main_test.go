package main

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

func TestGeneratedFilesAreWhatIsGenerated(t *testing.T) {
	header, err := readHeader()
	must(t, err)
	files, err := generate(header)
	must(t, err)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../..", name))
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what is generated: run \"make generate\"", name)
		}
	}
}

// The names are found in another way than the generator finds them.
func TestEveryFunctionOfTheHeaderIsExported(t *testing.T) {
	header, err := readHeader()
	must(t, err)
	library, err := elf.Open(built)
	must(t, err)
	defer library.Close()
	symbols, err := library.DynamicSymbols()
	must(t, err)
	exported := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			exported[s.Name] = true
		}
	}
	found := regexp.MustCompile(`DECLDIR +(nvml\w+)`).FindAllSubmatch(header, -1)
	if len(found) < 400 {
		t.Fatalf("the header declares %d functions, want more than 400", len(found))
	}
	for _, m := range found {
		if name := string(m[1]); !exported[name] {
			t.Errorf("%s is not exported", name)
		}
	}
	for _, old := range []string{"nvmlInit", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlEventSetWait"} {
		if !exported[old] {
			t.Errorf("%s, which old programs call, is not exported", old)
		}
	}
	sonames, err := library.DynString(elf.DT_SONAME)
	must(t, err)
	if !slices.Equal(sonames, []string{"libnvidia-ml.so.1"}) {
		t.Errorf("the soname is %v", sonames)
	}
}
