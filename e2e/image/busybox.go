package image

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"strings"
)

// busyboxFolder is where an image has busybox and its applets.
const busyboxFolder = "/bin"

// Busybox returns the busybox program at a path on disk, which this machine must be
// able to run, as a file of an image, and a link beside it for each of its applets.
func Busybox(ctx context.Context, program string) ([]File, []Link, error) {
	output, err := exec.CommandContext(ctx, program, "--list").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the applets of %s: %w", program, err)
	}
	target := path.Join(busyboxFolder, "busybox")
	var links []Link
	for _, applet := range strings.Fields(string(output)) {
		if link := path.Join(busyboxFolder, applet); link != target {
			links = append(links, Link{Path: link, Target: target})
		}
	}
	return []File{{Path: target, Source: program, Mode: 0o755}}, links, nil
}
