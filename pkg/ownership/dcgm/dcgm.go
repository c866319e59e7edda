// Package dcgm tells an unchanged dcgm-exporter who holds which GPU, by the files that
// it reads for HPC jobs (--hpc-job-mapping-dir, DCGM_HPC_JOB_MAPPING_DIR).
//
// What a stock dcgm-exporter does with them (its internal/pkg/transformation/hpc.go,
// internal/pkg/rendermetrics and README, the last of 4.6.0):
//
//   - At every scrape it lists the folder and reads each regular file whose name is a
//     number, the GPU's DCGM id: the label "gpu", and NVML's index where DCGM sees all
//     GPUs. Folders and files of other names are passed over. Releases whose README
//     says so also read "index.instance", with NVML's GPU instance id (the label
//     GPU_I_ID); earlier ones pass those over, and partitions stay without an owner.
//   - Each line is a job. Every series of the GPU is written once for each job, with the
//     label hpc_job: the value of the whole device is repeated, not divided.
//   - Releases before its pull request 533 (2025) lose all series of a GPU whose file
//     is empty.
//   - The line becomes the label's value without any escaping: a quote in it would end
//     the value and could add labels or break the page. A line over 64 KiB fails the
//     scrape.
//   - A folder that is not there is no error. A file that cannot be read fails the
//     scrape (HTTP 500); that may also be the one scrape which listed a file just
//     before it was removed.
//
// So this package writes files that are never empty and replaces each at once; there
// are as few lines as are true; and lines have a fixed alphabet, since the names come
// from whoever may make pods in a namespace. A line is one of
//
//	namespace/pod/container   the only container of the pod that uses the device
//	namespace/pod             several of its containers do, or none
//	namespace/claim:name      no pod is known that uses the claim which holds it
//
// A pod that has ended counts only while no other pod uses the claim. Holds with admin
// access take nothing of the device and are left out. All other characters than
// letters, digits, dots, dashes and underscores, which names in Kubernetes do not have,
// become underscores.
//
// The files stay when the writer ends, and are true: what is prepared stays so until
// the next writer. Whoever stops using the folder for good removes it.
//
// It knows the format and the folder. It knows nothing of NVML: who calls it says what
// index a GPU has.
package dcgm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"apportion.dev/apportion/pkg/ownership"
)

// contents says what the files should hold: name -> content. A device that has no name
// here is in the error, and the others are complete.
func contents(owners []ownership.Owner, index func(uuid string) (int, bool)) (map[string]string, []error) {
	lines := map[string][]string{}
	var errs []error
	for _, owner := range owners {
		if owner.AdminAccess {
			continue
		}
		name, err := fileName(owner.Device, index)
		if err != nil {
			errs = append(errs, fmt.Errorf("device %s/%s has no file for dcgm-exporter: %w", owner.Device.Pool, owner.Device.Name, err))
			continue
		}
		lines[name] = append(lines[name], ownerLines(owner)...)
	}
	files := make(map[string]string, len(lines))
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		slices.Sort(lines[name])
		files[name] = strings.Join(slices.Compact(lines[name]), "\n") + "\n"
	}
	return files, errs
}

// fileName is the GPU's index, followed by the GPU instance of a partition.
func fileName(device ownership.Device, index func(uuid string) (int, bool)) (string, error) {
	if device.IsPartition() && device.GPUInstanceID == nil {
		return "", errors.New("the id of its GPU instance is not known")
	}
	uuid := device.GPUUUID()
	number, ok := index(uuid)
	if !ok {
		return "", fmt.Errorf("the index of GPU %q is not known", uuid)
	}
	if device.IsPartition() {
		return fmt.Sprintf("%d.%d", number, *device.GPUInstanceID), nil
	}
	return strconv.Itoa(number), nil
}

// ownerLines says who uses a device by a claim: at least one line.
func ownerLines(owner ownership.Owner) []string {
	var lines []string
	for _, consumer := range ownership.Present(owner.Consumers) {
		line := safe(consumer.Namespace) + "/" + safe(consumer.Name)
		if len(consumer.Containers) == 1 {
			line += "/" + safe(consumer.Containers[0].Name)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = append(lines, safe(owner.Claim.Namespace)+"/claim:"+safe(owner.Claim.Name))
	}
	return lines
}

// longestName is that of a DNS subdomain, the longest of names in Kubernetes.
const longestName = 253

// safe keeps of a name what cannot end a label's value or a line.
func safe(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, name)
	if name == "" {
		return "_"
	}
	return name[:min(len(name), longestName)]
}
