package mps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// maxAnswer is more than the answer for 64 GPUs with 100 claims each.
const maxAnswer = 1 << 20

// Client asks a supervisor. It may be used concurrently.
type Client struct {
	socket string
	http   http.Client
	// forgetting is held while forget changes the file of users.
	forgetting sync.Mutex
}

// New returns a client of the supervisor that listens at the socket. It does
// not look for it yet.
func New(socket string) *Client {
	return &Client{socket: socket, http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		// Calls are rare.
		DisableKeepAlives: true,
	}}}
}

// Acquire makes the claim a user of the GPU's daemon and returns when the daemon
// answers, which takes about a second for the first user. It may be called again,
// and a claim that Acquire failed for is no user unless it was one before. It is
// ErrUnavailable if there can be no daemon here.
func (c *Client) Acquire(ctx context.Context, gpu string, claim types.UID) error {
	return c.ofClaim(ctx, http.MethodPut, gpu, claim)
}

// Release ends the claim's use of the GPU's daemon. It returns when the daemon has
// ended, if this was its last user. It is no error if the claim is no user. Where the
// supervisor has ended for a while, the next one does not know the claim any more.
func (c *Client) Release(ctx context.Context, gpu string, claim types.UID) error {
	err := c.ofClaim(ctx, http.MethodDelete, gpu, claim)
	if errors.Is(err, ErrUnavailable) {
		return c.forget(err, func(g string, u types.UID) bool { return g != gpu || u != claim })
	}
	return err
}

// Retain releases all uses that are not to be kept, such as those that a plugin
// acquired and ended before it recorded them.
func (c *Client) Retain(ctx context.Context, keep func(gpu string, claim types.UID) bool) error {
	gpus, err := c.List(ctx)
	if errors.Is(err, ErrUnavailable) {
		return c.forget(err, keep)
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, g := range gpus {
		for _, claim := range g.Claims {
			if !keep(g.UUID, claim) {
				errs = append(errs, c.Release(ctx, g.UUID, claim))
			}
		}
	}
	return errors.Join(errs...)
}

// forget takes the users that are not to be kept out of the file that a supervisor
// left. If that names no users, the error is the given one.
func (c *Client) forget(away error, keep func(gpu string, claim types.UID) bool) error {
	c.forgetting.Lock()
	defer c.forgetting.Unlock()
	dir := filepath.Dir(c.socket)
	data, err := os.ReadFile(usersPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return away
	}
	if err != nil {
		return fmt.Errorf("users of MPS: %w", err)
	}
	left, err := parseUsers(data)
	if err != nil {
		return away // The next supervisor sets it aside, and tells.
	}
	changed := false
	for gpu, claims := range left {
		kept := slices.DeleteFunc(slices.Clone(claims), func(claim types.UID) bool { return !keep(gpu, claim) })
		changed = changed || len(kept) < len(claims)
		left[gpu] = kept
	}
	if !changed {
		return nil
	}
	// No supervisor starts, or is still ending, meanwhile.
	lock, err := lockFolder(dir)
	if err != nil {
		return fmt.Errorf("apportion-mps is starting or ending, and answers in a while: %w", err)
	}
	defer lock.Close()
	return left.save(dir)
}

// List returns the GPUs with daemons, ordered by UUID.
func (c *Client) List(ctx context.Context) ([]GPU, error) {
	var gpus []GPU
	err := c.call(ctx, http.MethodGet, gpusPath, &gpus)
	return gpus, err
}

func (c *Client) ofClaim(ctx context.Context, method, gpu string, claim types.UID) error {
	if err := checkNames(gpu, claim); err != nil {
		return err
	}
	path := strings.NewReplacer("{gpu}", gpu, "{claim}", string(claim)).Replace(claimPath)
	return c.call(ctx, method, path, nil)
}

// call decodes the answer into result if it is not nil.
func (c *Client) call(ctx context.Context, method, path string, result any) error {
	// The host is never looked up.
	request, err := http.NewRequestWithContext(ctx, method, "http://mps"+path, nil)
	if err != nil {
		return fmt.Errorf("ask the supervisor of MPS: %w", err)
	}
	response, err := c.http.Do(request)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unavailable("nothing is at its socket %s, apportion-mps is not deployed or has just ended", c.socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody listens at the socket %s: apportion-mps is starting again; remove the socket if it is not deployed any more", c.socket)
	case err != nil:
		return fmt.Errorf("ask the supervisor of MPS at %s: %w", c.socket, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("ask the supervisor of MPS at %s: %w", c.socket, err)
	}
	if response.StatusCode != http.StatusOK {
		return asError(response.Status, data)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(data, result); err != nil {
		return fmt.Errorf("answer of the supervisor of MPS: %w", err)
	}
	return nil
}

// asError is the error that the supervisor had.
func asError(status string, data []byte) error {
	var f failure
	if err := json.Unmarshal(data, &f); err != nil || f.Error == "" {
		return fmt.Errorf("supervisor of MPS: %s", status)
	}
	if f.Unavailable {
		return unavailable("%s", strings.TrimPrefix(f.Error, ErrUnavailable.Error()+": "))
	}
	return errors.New(f.Error)
}
