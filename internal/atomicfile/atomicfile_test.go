package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteReplacesContentAndMode(t *testing.T) {
	for name, write := range map[string]func(string, []byte, os.FileMode) error{"durable": Write, "volatile": WriteVolatile} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "record.json")
			if err := write(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := write(path, []byte("new"), 0o640); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != "new" {
				t.Fatalf("content is %q, %v; want new", got, err)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != 0o640 {
				t.Fatalf("mode is %v, %v; want 0640", info.Mode(), err)
			}
			wantFiles(t, dir, "record.json")
		})
	}
}

func TestFailedWriteKeepsOldContentAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	// A folder cannot be replaced by a file, so the rename fails.
	path := filepath.Join(dir, "record.json")
	if err := os.MkdirAll(filepath.Join(path, "inside"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o600); err == nil {
		t.Fatal("no error")
	}
	wantFiles(t, dir, "record.json")
}

func TestSweepRemovesOnlyUnfinishedFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.json", ".hidden", ".a.json.tmp-123"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(dir); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, ".hidden", "a.json")
}

// A container's process has the same id each time, and counts from one.
func TestWhatAKilledProcessLeftIsNotInTheWay(t *testing.T) {
	dir := t.TempDir()
	for serial := range 20 {
		left := filepath.Join(dir, fmt.Sprintf(".hook%s%d-%d", tempMark, os.Getpid(), serial))
		if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(filepath.Join(dir, "hook"), []byte("new"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(dir); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, "hook")
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if len(got) != len(want) {
		t.Fatalf("files are %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("files are %q, want %q", got, want)
		}
	}
}
