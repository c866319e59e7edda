package exporter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

const (
	temperature = "DCGM_FI_DEV_GPU_TEMP"
	memoryUsed  = "DCGM_FI_DEV_FB_USED"
)

func values(temp, used float64) []gpumetrics.Value {
	return []gpumetrics.Value{number(temp), absent, absent, number(used)}
}

// temp is a line of the temperature of GPU 0.
func temp(value string, pod string) string {
	if pod == "" {
		return temperature + `{Hostname="node-a",UUID="GPU-0",device="nvidia0",gpu="0",modelName="NVIDIA T",pci_bus_id="00000000:1B:00.0"} ` + value
	}
	return temperature + `{Hostname="node-a",UUID="GPU-0",container="main",device="nvidia0",gpu="0",modelName="NVIDIA T",namespace="team",pci_bus_id="00000000:1B:00.0",pod="` + pod + `"} ` + value
}

func TestADeviceHasThePodOfTheContainerThatUsesItAlone(t *testing.T) {
	waiting := whole(0, "c", "a")
	waiting.Consumers[0].State, waiting.Consumers[0].Containers[0].ID = ownership.Waiting, ""
	terminating := whole(0, "c", "a")
	terminating.Consumers[0].State = ownership.Terminating
	gone := whole(0, "c", "a")
	gone.Consumers[0].State = ownership.Gone
	goneAndRunning := whole(0, "c", "a", "b")
	goneAndRunning.Consumers[1].State = ownership.Gone
	admin := whole(0, "watch", "w")
	admin.AdminAccess, admin.Device.Fraction = true, 0
	idle := whole(0, "c", "a")
	idle.Consumers[0].Containers = nil
	two := whole(0, "c", "a")
	two.Consumers[0].Containers = append(two.Consumers[0].Containers, ownership.Container{Name: "other", Kind: ownership.RegularContainer})
	twoRequests := []ownership.Owner{share(0, "c", 0.5, "a"), share(0, "d", 0.5, "a")}

	for _, test := range []struct {
		name   string
		owners []ownership.Owner
		pod    string
	}{
		{"nobody", nil, ""},
		{"one", []ownership.Owner{whole(0, "c", "a")}, "a"},
		{"before it starts", []ownership.Owner{waiting}, "a"},
		{"while it ends", []ownership.Owner{terminating}, "a"},
		{"when it has ended", []ownership.Owner{gone}, ""},
		{"another pod of the claim has ended", []ownership.Owner{goneAndRunning}, "a"},
		{"a claim without pods", []ownership.Owner{whole(0, "c")}, ""},
		{"a pod none of whose containers uses it", []ownership.Owner{idle}, ""},
		{"two containers", []ownership.Owner{two}, ""},
		{"two pods of one claim", []ownership.Owner{whole(0, "c", "a", "b")}, ""},
		{"two shares", []ownership.Owner{share(0, "c", 0.5, "a"), share(0, "d", 0.5, "b")}, ""},
		{"one container with two shares", twoRequests, "a"},
		{"a share", []ownership.Owner{share(0, "c", 0.25, "a")}, "a"},
		{"a share, and one whose pod is not known yet", []ownership.Owner{share(0, "c", 0.5, "a"), share(0, "d", 0.5)}, ""},
		{"an administrator looks on", []ownership.Owner{whole(0, "c", "a"), admin}, "a"},
		{"an administrator alone", []ownership.Owner{admin}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			r.owners(0, test.owners...)
			r.Update(sample(1, gpu(0, values(40, 100)...)))
			r.expect([]string{temperature}, temp("40", test.pod))
		})
	}
}

func TestSeriesHaveThePodLabelsThatAreWanted(t *testing.T) {
	r := newRig(t)
	r.o.PodLabels = []string{"app.kubernetes.io/name", "team", "app-kubernetes-io-name"}
	o := share(0, "c", 0.25, "a")
	o.Consumers[0].Labels = map[string]string{"app.kubernetes.io/name": "train", "app-kubernetes-io-name": "other", "secret": "x"}
	r.owners(0, o)
	r.Update(sample(1, gpu(0, values(40, 100)...)))
	for _, family := range []string{temperature, "apportion_device_owner_info"} {
		lines := r.lines(family)
		if len(lines) != 1 || !strings.Contains(lines[0], `label_app_kubernetes_io_name="train"`) || strings.Count(lines[0], "label_") != 1 {
			t.Errorf("series of %s are %q, want one with that label alone", family, lines)
		}
	}
}

func TestInitContainersUseADeviceWhileTheyRun(t *testing.T) {
	containers := func(initID, sidecarID, mainID string) []ownership.Container {
		return []ownership.Container{
			{Name: "init", Kind: ownership.InitContainer, ID: initID},
			{Name: "sidecar", Kind: ownership.Sidecar, ID: sidecarID},
			{Name: "main", Kind: ownership.RegularContainer, ID: mainID, Started: mainID != ""},
		}
	}
	restarting := func(all []ownership.Container) []ownership.Container {
		all[len(all)-1].Started = true
		return all
	}
	without := func(name string, all []ownership.Container) []ownership.Container {
		var kept []ownership.Container
		for _, c := range all {
			if c.Name != name {
				kept = append(kept, c)
			}
		}
		return kept
	}
	for _, test := range []struct {
		name       string
		containers []ownership.Container
		want       string
	}{
		{"before any", containers("", "", ""), ""},
		{"init", containers("1", "", ""), "init"},
		{"init beside a sidecar", containers("1", "2", ""), "init sidecar"},
		{"after init", containers("", "2", ""), "sidecar"},
		{"all up", containers("", "2", "3"), "sidecar main"},
		{"main restarts", restarting(containers("", "2", "")), "sidecar main"},
		{"init reported late", containers("1", "2", "3"), "sidecar main"},
		{"init and main, before", without("sidecar", containers("", "", "")), ""},
		{"init and main, first", without("sidecar", containers("1", "", "")), "init"},
		{"init and main, then", without("sidecar", containers("", "", "3")), "main"},
		{"init and main, between", without("sidecar", containers("", "", "")), ""},
		{"init and main, restarting", restarting(without("sidecar", containers("", "", ""))), "main"},
		{"main alone, before", containers("", "", "")[2:], "main"},
		{"init alone, after it has ended", containers("", "", "")[:1], "init"},
		{"none", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var names []string
			for _, c := range using(&ownership.Consumer{State: ownership.Running, Containers: test.containers}) {
				names = append(names, c.Name)
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("used by %q, want %q", got, test.want)
			}
		})
	}
}

func TestSharesHaveWhatIsMeasuredOfThemAndNothingOfTheWhole(t *testing.T) {
	r := newRig(t)
	a, b, c := share(0, "a", 0.25, "a"), share(0, "b", 0.25, "b"), share(0, "c", 0.5, "c")
	a.MemoryLimitBytes = ptr.To(int64(10000))
	b.Consumers[0].Workload = &ownership.Workload{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	c.Consumers[0].Containers[0].ID = "" // It has not started.
	r.owners(0, a, b, c)
	d := gpu(0, values(40, 9000)...)
	d.SMUtil = ptr.To(0.8)
	r.process(&d, 1, "a", 1000, ptr.To(0.5))
	r.process(&d, 2, "a", 500, ptr.To(0.25))
	r.process(&d, 3, "", 250, ptr.To(0.05)) // A process of the node.
	r.process(&d, 4, "elsewhere", 125, nil)
	r.Update(sample(1, d))

	of := func(name, claim, pod, more, value string) string {
		return fmt.Sprintf(`%s{Hostname="node-a",UUID="GPU-0",claim=%q,claim_uid="uid-%s",container="main",device="gpu-0",gpu="0",modelName="NVIDIA T",namespace="team",pod=%q,pod_uid="uid-%s",request="gpu",share_id="share-%s",uuid="GPU-0"%s} %s`,
			name, claim, claim, pod, pod, claim, more, value)
	}
	workload := `,workload="web",workload_kind="Deployment"`
	r.expect([]string{temperature, memoryUsed, shareMemoryUsed.name, shareMemoryLimit.name, shareSMUtil.name},
		temp("40", ""),
		strings.Replace(temp("9000", ""), temperature, memoryUsed, 1),
		of(shareMemoryUsed.name, "a", "a", "", "1500"),
		of(shareSMUtil.name, "a", "a", "", "0.75"),
		of(shareMemoryLimit.name, "a", "a", "", "10000"),
		// It runs, has no process on the GPU, and so uses nothing.
		of(shareMemoryUsed.name, "b", "b", workload, "0"),
		of(shareSMUtil.name, "b", "b", workload, "0"),
	)
}

func TestWhatIsNotMeasuredIsAbsent(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(r *rig, d *gpumetrics.Device)
		want   []string
	}{
		{"processes cannot be listed", func(_ *rig, d *gpumetrics.Device) { d.Processes = nil }, nil},
		{"a process cannot be looked up", func(r *rig, d *gpumetrics.Device) {
			r.process(d, 1, "a", 10, nil)
			delete(r.containers, 1)
		}, nil},
		{"utilization is not measured", func(r *rig, d *gpumetrics.Device) { r.process(d, 1, "a", 10, nil) }, []string{shareMemoryUsed.name + " 10"}},
		{"nor of an idle container", func(*rig, *gpumetrics.Device) {}, []string{shareMemoryUsed.name + " 0"}},
		{"all is", func(r *rig, d *gpumetrics.Device) { r.process(d, 1, "a", 10, ptr.To(0.5)) }, []string{shareMemoryUsed.name + " 10", shareSMUtil.name + " 0.5"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			r.owners(0, share(0, "a", 0.25, "a"))
			d := gpu(0)
			test.change(r, &d)
			r.Update(sample(1, d))
			var got []string
			for _, line := range r.lines(shareMemoryUsed.name, shareSMUtil.name) {
				name, rest, _ := strings.Cut(line, "{")
				_, value, _ := strings.Cut(rest, "} ")
				got = append(got, name+" "+value)
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// One container may hold two shares of a GPU; its processes are its own once.
func TestAContainerWithTwoClaimsOnADeviceCountsOnce(t *testing.T) {
	r := newRig(t)
	a, b := share(0, "a", 0.25, "p"), share(0, "b", 0.25, "p")
	a.MemoryLimitBytes, b.MemoryLimitBytes = ptr.To(int64(1)), ptr.To(int64(2))
	r.owners(0, a, b)
	d := gpu(0)
	r.process(&d, 1, "p", 700, ptr.To(0.5))
	r.Update(sample(1, d))
	if got := r.lines(shareMemoryUsed.name); len(got) != 1 || !strings.HasSuffix(got[0], " 700") || strings.Contains(got[0], "claim") {
		t.Errorf("memory: %v", got)
	}
	if got := r.lines(shareSMUtil.name); len(got) != 1 || !strings.HasSuffix(got[0], " 0.5") {
		t.Errorf("utilization: %v", got)
	}
	if got := r.lines(shareMemoryLimit.name); len(got) != 2 {
		t.Errorf("limits: %v", got)
	}
}

func TestPartitionsAreTheirOwnersAndTheGPUIsNobodys(t *testing.T) {
	r := newRig(t)
	r.owners(0, partition(0, 3, "1g.10gb", "c", 0.125, "a"))
	parent := gpu(0, values(40, 5000)...)
	r.Update(sample(1, parent, instance(parent, 3, "1g.10gb", absent, absent, absent, number(100)), instance(parent, 4, "1g.10gb", absent, absent, absent, number(7))))
	place := func(pod, id string) string {
		labels := `{GPU_I_ID="` + id + `",GPU_I_PROFILE="1g.10gb",Hostname="node-a",UUID="GPU-0",`
		if pod == "" {
			return labels + `device="nvidia0",gpu="0",modelName="NVIDIA T",pci_bus_id="00000000:1B:00.0"}`
		}
		return labels + `container="main",device="nvidia0",gpu="0",modelName="NVIDIA T",namespace="team",pci_bus_id="00000000:1B:00.0",pod="` + pod + `"}`
	}
	// The memory is that of the partitions: with the GPU's it would be summed up twice.
	r.expect([]string{temperature, memoryUsed},
		temp("40", ""),
		memoryUsed+place("a", "3")+" 100",
		memoryUsed+place("", "4")+" 7",
	)
	// When the partitions have gone, the GPU has it.
	r.owners(2)
	r.Update(sample(3, gpu(0, values(40, 0)...)))
	r.expect([]string{memoryUsed}, strings.Replace(temp("0", ""), temperature, memoryUsed, 1))
}

func TestAPartitionWithoutAUUIDIsFoundByItsPlace(t *testing.T) {
	r := newRig(t)
	o := partition(0, 3, "1g.10gb", "c", 0.125, "a")
	o.Device.UUID = ""
	r.owners(0, o)
	parent := gpu(0)
	r.Update(sample(1, parent, instance(parent, 3, "1g.10gb", absent, absent, absent, number(100))))
	if got := r.lines(memoryUsed); len(got) != 1 || !strings.Contains(got[0], `pod="a"`) {
		t.Errorf("%v", got)
	}
	if got := r.lines(ownerInfo.name); len(got) != 1 || !strings.Contains(got[0], `GPU_I_ID="3"`) {
		t.Errorf("%v", got)
	}
}

func TestLabelFieldsAreLabelsOfTheDevicesSeries(t *testing.T) {
	r := newRig(t)
	r.Update(sample(2, gpu(0, number(40), number(5), text("580.95.05"), absent)))
	lines := r.lines(temperature, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DRIVER_VERSION")
	if len(lines) != 2 || !strings.Contains(lines[0], `{DCGM_FI_DRIVER_VERSION="580.95.05",`) || !strings.Contains(lines[1], `{DCGM_FI_DRIVER_VERSION="580.95.05",`) {
		t.Errorf("%v", lines)
	}
	r.Update(sample(3, gpu(0, number(40), number(5), text("590.01"), absent)))
	if lines := r.lines(temperature); len(lines) != 1 || !strings.Contains(lines[0], `"590.01"`) {
		t.Errorf("%v", lines)
	}
}

func TestEveryOwnerHasAnInfoSeries(t *testing.T) {
	r := newRig(t)
	several := share(0, "s", 0.5, "a", "b")
	several.Consumers[1].State = ownership.Gone
	several.Consumers[0].Containers = append(several.Consumers[0].Containers, ownership.Container{Name: "init", Kind: ownership.InitContainer})
	several.Consumers = append(several.Consumers, ownership.Consumer{Namespace: "team", Name: "idle", UID: "uid-idle", State: ownership.Running})
	admin := whole(0, "watch", "w")
	admin.AdminAccess = true
	r.owners(0, several, admin, whole(1, "unused"), whole(9, "lost", "l"))
	r.Update(sample(1, gpu(0), gpu(1)))
	hold := func(n, claim, extra string) string {
		model := `,gpu="` + n + `",modelName="NVIDIA T"`
		if n == "9" {
			model = ""
		}
		before, after, _ := strings.Cut(extra, "|")
		if before != "" {
			before = "container=" + before + ","
		}
		if claim == "watch" {
			return fmt.Sprintf(`%s{Hostname="node-a",UUID="GPU-%s",admin_access="true",claim=%q,claim_uid="uid-%s",%sdevice="gpu-%s"%s,namespace="team"%s,uuid="GPU-%s"} 1`,
				ownerInfo.name, n, claim, claim, before, n, model, after, n)
		}
		return fmt.Sprintf(`%s{Hostname="node-a",UUID="GPU-%s",claim=%q,claim_uid="uid-%s",%sdevice="gpu-%s"%s,namespace="team"%s,uuid="GPU-%s"} 1`,
			ownerInfo.name, n, claim, claim, before, n, model, after, n)
	}
	r.expect([]string{ownerInfo.name},
		hold("0", "s", `"main"|,pod="a",pod_uid="uid-a",request="gpu",share_id="share-s"`),
		hold("0", "s", `"init"|,pod="a",pod_uid="uid-a",request="gpu",share_id="share-s"`),
		hold("0", "s", `|,pod="idle",pod_uid="uid-idle",request="gpu",share_id="share-s"`),
		hold("0", "watch", `"main"|,pod="w",pod_uid="uid-w",request="gpu"`),
		hold("1", "unused", `|,request="gpu"`),
		hold("9", "lost", `"main"|,pod="l",pod_uid="uid-l",request="gpu"`),
	)
}

func TestHostileNamesCannotSpoilAScrape(t *testing.T) {
	r := newRig(t)
	o := whole(0, "a", "a")
	o.Consumers[0].Name = "a\"} 1\n" + temperature + "{x=\"\\\xff\x00"
	second := o
	second.Request = "gpu" // The very same owner again.
	r.owners(0, o, second)
	d := gpu(0, values(40, 0)...)
	d.GPU.ModelName = "T\xc3"
	r.Update(sample(1, d, d))
	lines := r.lines(temperature)
	want := `pod="a\"} 1` + "\ufffd" + temperature + `{x=\"\\` + "\ufffd\ufffd" + `"} 40`
	if len(lines) != 1 || !strings.HasSuffix(lines[0], want) || !strings.Contains(lines[0], `modelName="T`+"\ufffd"+`"`) {
		t.Errorf("%q, want the end %q", lines, want)
	}
	if lines := r.lines(ownerInfo.name); len(lines) != 1 {
		t.Errorf("%q", lines)
	}
}

func TestPCIAddressesAreWrittenAsDCGMDoes(t *testing.T) {
	for address, want := range map[string]string{
		"0000:1b:00.0": "00000000:1B:00.0", "10000:af:1f.7": "00010000:AF:1F.7", "": "", "odd": "odd", "x:y": "x:y",
	} {
		if got := dcgmBusID(address); got != want {
			t.Errorf("%q is written %q, want %q", address, got, want)
		}
	}
}

func TestTheMinorNumberNamesTheDeviceNode(t *testing.T) {
	r := newRig(t)
	d, e := gpu(0, values(40, 0)...), gpu(1, values(41, 0)...)
	d.GPU.Minor, e.GPU.Minor = ptr.To(5), nil
	r.Update(gpumetrics.Sample{Time: start.Add(2 * time.Second), Devices: []gpumetrics.Device{d, e}})
	lines := strings.Join(r.lines(temperature), "\n")
	if !strings.Contains(lines, `device="nvidia5",gpu="0"`) || !strings.Contains(lines, `device="nvidia1",gpu="1"`) {
		t.Error(lines)
	}
}
