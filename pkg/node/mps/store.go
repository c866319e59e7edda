package mps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/internal/atomicfile"
)

// usersFormat is the version of the file of users.
const usersFormat = 1

// users are the claims that use each GPU's daemon, by GPU.
type users map[string][]types.UID

// usersFile is the file that keeps users over a restart.
type usersFile struct {
	Format int   `json:"format"`
	GPUs   users `json:"gpus"`
}

func usersPath(dir string) string { return filepath.Join(dir, "users.json") }

// loadUsers reads the users that are kept in dir. A file that cannot be understood
// is set aside, and aside is its new path: the plugin acquires for its claims again.
func loadUsers(dir string) (u users, aside string, err error) {
	data, err := os.ReadFile(usersPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return users{}, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("users of MPS: %w", err)
	}
	u, damage := parseUsers(data)
	if damage == nil {
		return u, "", nil
	}
	aside = usersPath(dir) + ".damaged"
	if err := os.Rename(usersPath(dir), aside); err != nil {
		return nil, "", fmt.Errorf("users of MPS: %w; set it aside: %w", damage, err)
	}
	return users{}, aside, nil
}

func parseUsers(data []byte) (users, error) {
	var file usersFile
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	if file.Format != usersFormat {
		return nil, fmt.Errorf("format %d is not known", file.Format)
	}
	for gpu, claims := range file.GPUs {
		for _, claim := range claims {
			if err := checkNames(gpu, claim); err != nil {
				return nil, err
			}
		}
	}
	return file.GPUs, nil
}

// save returns when the users are on the disk.
func (u users) save(dir string) error {
	data, err := json.MarshalIndent(usersFile{Format: usersFormat, GPUs: u}, "", "  ")
	if err == nil {
		err = atomicfile.Write(usersPath(dir), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("users of MPS: %w", err)
	}
	return nil
}

func sorted[K ~string, V any](set map[K]V) []K { return slices.Sorted(maps.Keys(set)) }
