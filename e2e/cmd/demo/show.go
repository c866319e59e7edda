package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// podPatience is how long the demo's pods may take to start.
const podPatience = 3 * time.Minute

// up starts everything and shows it.
func up(ctx context.Context, b backend) error {
	if err := b.up(ctx); err != nil {
		return err
	}
	manifests, err := filepath.Glob(filepath.Join("..", "demo", "*.yaml"))
	if err != nil || len(manifests) == 0 {
		return fmt.Errorf("no manifests in the demo folder (%v): run this from the e2e folder", err)
	}
	fmt.Printf("Applying %d manifests of the demo folder\n", len(manifests))
	for _, file := range manifests {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := b.kubectl(ctx, content, "apply", "--filename", "-"); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	fmt.Println("Waiting for the pods")
	for _, namespace := range []string{"default", "gpu-admin"} {
		if _, err := b.kubectl(ctx, nil, "wait", "--namespace", namespace, "--for=condition=Ready", "pod", "--all", "--timeout", podPatience.String()); err != nil {
			return err
		}
	}
	if err := showTable(ctx, b); err != nil {
		return err
	}
	if err := showViews(ctx, b); err != nil {
		return err
	}
	fmt.Println("\nHow to go on")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	for _, hint := range [][2]string{
		{b.howToCall() + " get resourceslices -o yaml", "what the nodes publish"},
		{b.howToCall() + " get resourceclaims -o yaml", "who has what, and what it is"},
		{b.howToCall() + " exec mig-by-profile -- nvidia-smi -L", "a pod's view of its partition"},
		{"demo/*.yaml", "the manifests that run here; change them and apply them again"},
		{"make demo-down", "stop the cluster and remove all it made"},
	} {
		fmt.Fprintf(w, "  %s\t%s\n", hint[0], hint[1])
	}
	return w.Flush()
}

// row is a line of the table: a GPU or partition and one of its users.
type row struct{ node, device, product, memory, claim, pod string }

// holder is a claim that has a device.
type holder struct{ memory, claim, pods string }

// showTable prints each node's GPUs with the claims and pods that have them. A GPU
// that is partitioned is shown by its partitions in use.
func showTable(ctx context.Context, b backend) error {
	var published resourceapi.ResourceSliceList
	var claims resourceapi.ResourceClaimList
	var pods corev1.PodList
	for kind, list := range map[string]any{"resourceslices": &published, "resourceclaims": &claims, "pods": &pods} {
		output, err := b.kubectl(ctx, nil, "get", kind, "--all-namespaces", "--output", "json")
		if err != nil {
			return err
		}
		if err := json.Unmarshal(output, list); err != nil {
			return fmt.Errorf("read %s: %w", kind, err)
		}
	}
	rows := tableRows(published.Items, holders(claims.Items, pods.Items))
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tDEVICE\tPRODUCT\tMEMORY\tCLAIM\tPODS")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.node, r.device, r.product, r.memory, r.claim, r.pod)
	}
	return w.Flush()
}

// holders are the claims that have each device, by node and device.
func holders(claims []resourceapi.ResourceClaim, pods []corev1.Pod) map[string][]holder {
	podNames := map[string]string{}
	for _, p := range pods {
		podNames[string(p.UID)] = p.Namespace + "/" + p.Name
	}
	held := map[string][]holder{}
	for _, c := range claims {
		if c.Status.Allocation == nil {
			continue
		}
		var names []string
		for _, r := range c.Status.ReservedFor {
			names = append(names, podNames[string(r.UID)])
		}
		for _, result := range c.Status.Allocation.Devices.Results {
			h := holder{claim: c.Namespace + "/" + c.Name, pods: strings.Join(names, ", ")}
			if result.AdminAccess != nil && *result.AdminAccess {
				h.claim += " (admin)"
			}
			if memory, ok := result.ConsumedCapacity["memory"]; ok {
				h.memory = memory.String()
			}
			key := result.Pool + "/" + result.Device
			held[key] = append(held[key], h)
		}
	}
	return held
}

func tableRows(published []resourceapi.ResourceSlice, held map[string][]holder) []row {
	// A GPU's name is how those of its partitions begin.
	partitioned := map[string]bool{}
	for key := range held {
		if gpu, _, ok := strings.Cut(key, "-mig-"); ok {
			partitioned[gpu] = true
		}
	}
	var rows []row
	for _, s := range published {
		for _, d := range s.Spec.Devices {
			product := ""
			if name := d.Attributes["productName"].StringValue; name != nil {
				product = *name
			}
			free := row{node: s.Spec.Pool.Name, device: d.Name, product: product, memory: "-", claim: "-", pod: "-"}
			key := free.node + "/" + d.Name
			users := held[key]
			if len(users) == 0 && !partitioned[key] && !strings.Contains(d.Name, "-mig-") {
				rows = append(rows, free)
			}
			for _, u := range users {
				rows = append(rows, row{free.node, d.Name, product, u.memory, u.claim, u.pods})
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return strings.Compare(a.node+"/"+a.device+"/"+a.claim, b.node+"/"+b.device+"/"+b.claim)
	})
	return rows
}

// showViews prints what nvidia-smi says in each container.
func showViews(ctx context.Context, b backend) error {
	output, err := b.kubectl(ctx, nil, "get", "pods", "--all-namespaces", "--selector", "!app.kubernetes.io/name", "--output", "json")
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := json.Unmarshal(output, &pods); err != nil {
		return fmt.Errorf("read pods: %w", err)
	}
	fmt.Println("\nWhat each pod sees")
	for _, p := range pods.Items {
		if p.Namespace != "default" && p.Namespace != "gpu-admin" {
			continue
		}
		for _, c := range p.Spec.Containers {
			view, err := b.kubectl(ctx, nil, "exec", "--namespace", p.Namespace, p.Name, "--container", c.Name, "--", "nvidia-smi", "-L")
			if err != nil {
				return err
			}
			fmt.Printf("  %s/%s, container %s, on %s\n", p.Namespace, p.Name, c.Name, p.Spec.NodeName)
			for line := range bytes.Lines(bytes.TrimSpace(view)) {
				fmt.Printf("      %s\n", bytes.TrimRight(line, "\n"))
			}
		}
	}
	return nil
}
