package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// The taints of devices that must not be used.
const (
	unhealthy = driverName + "/unhealthy"
	missing   = driverName + "/missing"
)

func TestPartitionShareAndWholeGPUSideBySide(t *testing.T) {
	_, machine := node(t, "node-a")
	s := newSpace(t)
	onH100 := is("productName", h100)
	s.template("partition", asks(request("gpu", partitionOf("1g.10gb", onH100))))
	s.template("share", asks(request("gpu", shareOf("10Gi", onH100))))
	s.template("whole", asks(request("gpu", wholeOf(onH100))))
	s.run(usesTemplate("partition", "partition"), usesTemplate("share", "share"),
		usesTemplate("share-2", "share"), usesTemplate("whole", "whole"))

	// The partition's pod sees the MIG device that its claim names, on one GPU.
	mig := uuidOf(s.statusOf("partition")[0])
	smi := s.exec("partition", work, "nvidia-smi -L")
	if !strings.HasPrefix(mig, "MIG-") || strings.Count(smi, "GPU-") != 1 || strings.Count(smi, "MIG-") != 1 || !strings.Contains(smi, mig) {
		t.Errorf("the claim says %s, nvidia-smi in the pod with the partition says\n%s", mig, smi)
	}
	if got := strings.Fields(s.exec("partition", work, "ls /dev/nvidia-caps")); len(got) != 2 {
		t.Errorf("the pod with the partition has capabilities %v, want those of one GPU instance and its compute instance", got)
	}
	var parent string
	for _, g := range gpus(t, machine, h100) {
		if len(g.MIG) > 0 {
			parent = g.UUID
		}
		if len(g.MIG) > 1 || len(g.MIG) == 1 && (g.MIG[0].UUID != mig || g.MIG[0].Profile != "1g.10gb") {
			t.Errorf("GPU %s has partitions %+v", g.UUID, g.MIG)
		}
	}
	if !strings.Contains(smi, parent) {
		t.Errorf("the partition is on GPU %s, the pod sees\n%s", parent, smi)
	}
	// The two shares are of one GPU, and the whole GPU is neither theirs nor the
	// partition's.
	share, share2, whole := s.seesOneGPU("share"), s.seesOneGPU("share-2"), s.seesOneGPU("whole")
	if share != share2 || whole == share || whole == parent || share == parent {
		t.Errorf("shares of %s and %s, whole %s, partition of %s", share, share2, whole, parent)
	}
}

// seesOneGPU returns the UUID of the only GPU that nvidia-smi in the pod shows, which
// must be the one in the claim's status, without partitions.
func (s *space) seesOneGPU(podName string) string {
	s.t.Helper()
	uuid := uuidOf(s.statusOf(podName)[0])
	smi := s.exec(podName, work, "nvidia-smi -L")
	if strings.Count(smi, "GPU-") != 1 || strings.Contains(smi, "MIG-") || !strings.Contains(smi, uuid) {
		s.t.Errorf("pod %s has GPU %s, nvidia-smi says\n%s", podName, uuid, smi)
	}
	return uuid
}

// TestAGPUGoesThroughAllItsForms has one GPU partitioned in two ways, whole and
// shared, one after the other, by one process of the plugin.
func TestAGPUGoesThroughAllItsForms(t *testing.T) {
	n, machine := node(t, "node-a")
	before := pluginPod(t, n)
	uuid := gpus(t, machine, h100)[3].UUID
	onIt, ofIt := is("uuid", uuid), is("parentUUID", uuid)

	s := newSpace(t)
	s.template("1g", asks(request("gpu", partitionOf("1g.10gb", ofIt))))
	s.template("3g-4g", asks(request("small", partitionOf("3g.40gb", ofIt)), request("large", partitionOf("4g.40gb", ofIt))))
	s.template("whole", asks(request("gpu", wholeOf(onIt))))
	s.template("quarter", asks(request("gpu", shareOf("19Gi", onIt))))
	for _, form := range []struct {
		template string
		pods     int
		profiles []string
		mode     string
	}{
		{"1g", 7, slices.Repeat([]string{"1g.10gb"}, 7), "on"},
		{"3g-4g", 1, []string{"3g.40gb", "4g.40gb"}, "on"},
		{"whole", 1, nil, "off"},
		{"quarter", 4, nil, "off"},
	} {
		var pods []*corev1.Pod
		var names []string
		for i := range form.pods {
			pods = append(pods, usesTemplate(fmt.Sprintf("%s-%d", form.template, i), form.template))
			names = append(names, pods[i].Name)
		}
		s.run(pods...)
		now := gpu(t, machine, uuid)
		if got := profilesOf(now); !slices.Equal(got, form.profiles) || now.MIGMode != form.mode {
			t.Errorf("%s: the GPU has partitions %v, mode %s; want %v, mode %s", form.template, got, now.MIGMode, form.profiles, form.mode)
		}
		// There is no room for one more, nor for another form.
		s.start(usesTemplate("more-"+form.template, form.template))
		s.pending("more-" + form.template)
		s.deletePods("more-" + form.template)
		s.deletePods(names...)
		if left := gpu(t, machine, uuid); len(left.MIG) > 0 || left.MIGMode != "off" {
			t.Errorf("%s: afterwards the GPU has partitions %v, mode %s", form.template, profilesOf(left), left.MIGMode)
		}
	}
	if now := pluginPod(t, n); now.UID != before.UID || restarts(now) != restarts(before) {
		t.Error("the plugin was restarted meanwhile")
	}
}

// tainted are the devices of a node that have a taint of ours, with its key.
func tainted(devices []resourceapi.Device) map[string]string {
	found := map[string]string{}
	for _, d := range devices {
		for _, taint := range d.Taints {
			if strings.HasPrefix(taint.Key, driverName+"/") {
				found[d.Name] = taint.Key
			}
		}
	}
	return found
}

// wantTainted waits until exactly these devices of the node have a taint of ours,
// with the key.
func wantTainted(t *testing.T, nodeName, key string, devices ...string) {
	t.Helper()
	waitPublished(t, nodeName, fmt.Sprintf("taints %s of %v", key, devices), func(all []resourceapi.Device) error {
		found := tainted(all)
		for _, d := range devices {
			if found[d] != key {
				return fmt.Errorf("%s has the taint %q", d, found[d])
			}
		}
		if len(found) != len(devices) {
			return fmt.Errorf("tainted are %v", found)
		}
		return nil
	})
}

func TestAnXIDTaintsWhatItConcerns(t *testing.T) {
	_, machine := node(t, "node-a")
	chosen := gpus(t, machine, h100)[2]
	uuid := chosen.UUID
	s := newSpace(t)
	s.template("partition", asks(request("gpu", partitionOf("2g.20gb", is("parentUUID", uuid)))))
	s.run(usesTemplate("one", "partition"), usesTemplate("two", "partition"))

	// An error of one partition concerns that one, and is over when it is.
	mig := uuidOf(s.statusOf("one")[0])
	struck := s.resultsOf("one")[0].Device
	instance := -1
	for _, m := range gpu(t, machine, uuid).MIG {
		if m.UUID == mig {
			instance = m.GPUInstance
		}
	}
	fake(t, "node-a", "xid", "94", "--gpu", uuid, "--gpu-instance", fmt.Sprint(instance))
	wantTainted(t, "node-a", unhealthy, struck)
	s.wantHealth("one", corev1.ResourceHealthStatusUnhealthy, "94")
	s.wantHealth("two", corev1.ResourceHealthStatusHealthy, "")
	s.deletePods("one")
	wantTainted(t, "node-a", unhealthy)

	// An error of the GPU concerns all on it, and nothing of its neighbours.
	fake(t, "node-a", "xid", "95", "--gpu", uuid)
	defer func() {
		if err := replug(t, machine, chosen); err != nil {
			t.Error(err)
		}
		wantTainted(t, "node-a", unhealthy)
	}()
	devices, err := published(t.Context(), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	var onIt []string
	for _, d := range devices {
		if text(d, "uuid") == uuid || text(d, "parentUUID") == uuid {
			onIt = append(onIt, d.Name)
		}
	}
	wantTainted(t, "node-a", unhealthy, onIt...)
	s.wantHealth("two", corev1.ResourceHealthStatusUnhealthy, "95")
	s.start(usesTemplate("three", "partition"))
	s.pending("three")
	s.deletePods("two", "three")
}

// fake runs "apportion fake" in the plugin's pod, for the machine of its node.
func fake(t *testing.T, nodeName string, arguments ...string) {
	t.Helper()
	n, _ := node(t, nodeName)
	pod := pluginPod(t, n)
	command := append([]string{"--namespace", pod.Namespace, "exec", pod.Name, "--container", "plugin", "--", "/usr/bin/apportion", "fake"}, arguments...)
	if _, err := theCluster.RunKubectl(t.Context(), nil, append(command, "--machine", machineDir)...); err != nil {
		t.Fatal(err)
	}
}

// replug pulls a GPU out and, when the node has noticed, puts it back.
func replug(t *testing.T, machine *fakegpu.Machine, g fakegpu.GPUSummary) error {
	t.Helper()
	if err := machine.RemoveGPU(g.UUID); err != nil {
		return err
	}
	nodeName := summary(t, machine).Node
	has := func(devices []resourceapi.Device) bool {
		return slices.ContainsFunc(devices, func(d resourceapi.Device) bool { return text(d, "uuid") == g.UUID })
	}
	waitPublished(t, nodeName, "no "+g.UUID, func(devices []resourceapi.Device) error {
		if has(devices) {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
	if _, err := machine.AddGPU("", g.Slot); err != nil {
		return err
	}
	waitPublished(t, nodeName, g.UUID, func(devices []resourceapi.Device) error {
		if !has(devices) {
			return fmt.Errorf("it is not there")
		}
		return nil
	})
	return nil
}

func TestAPartitionThatSomebodyElseDestroyedIsFound(t *testing.T) {
	_, machine := node(t, "node-a")
	uuid := gpus(t, machine, h100)[5].UUID
	s := newSpace(t)
	s.template("partition", asks(request("gpu", partitionOf("7g.80gb", is("parentUUID", uuid)))))
	s.run(usesTemplate("one", "partition"))
	lost := s.resultsOf("one")[0].Device
	if err := machine.DestroyMIG("", uuidOf(s.statusOf("one")[0])); err != nil {
		t.Fatal(err)
	}
	wantTainted(t, "node-a", missing, lost)
	s.wantHealth("one", corev1.ResourceHealthStatusUnhealthy, "")
	s.deletePods("one")
	wantTainted(t, "node-a", missing)
	// The next pod gets the same device, made anew.
	s.run(usesTemplate("two", "partition"))
	if got := s.resultsOf("two")[0].Device; got != lost {
		t.Errorf("the next pod has %s, want %s", got, lost)
	}
	if got := profilesOf(gpu(t, machine, uuid)); !slices.Equal(got, []string{"7g.80gb"}) {
		t.Errorf("the GPU has partitions %v, want one 7g.80gb", got)
	}
}

func TestAnAdministratorsPartitionIsOfferedAndStays(t *testing.T) {
	_, machine := node(t, "node-a")
	uuid := gpus(t, machine, h100)[6].UUID
	own, err := machine.CreateMIG(uuid, "3g.40gb", 0)
	if err != nil {
		t.Fatal(err)
	}
	isWhole := func(d resourceapi.Device) bool { return text(d, "uuid") == uuid }
	defer func() {
		if err := machine.DestroyMIG(uuid, "all"); err != nil {
			t.Error(err)
		}
		if err := machine.SetMIGMode(uuid, false); err != nil {
			t.Error(err)
		}
		waitPublished(t, "node-a", "the GPU whole", func(devices []resourceapi.Device) error {
			if !slices.ContainsFunc(devices, isWhole) {
				return fmt.Errorf("it is not there")
			}
			return nil
		})
	}()
	waitPublished(t, "node-a", "the administrator's partition in place of what it overlaps", func(devices []resourceapi.Device) error {
		if slices.ContainsFunc(devices, isWhole) {
			return fmt.Errorf("the GPU is still offered whole")
		}
		offered := 0
		for _, d := range devices {
			if text(d, "parentUUID") != uuid {
				continue
			}
			switch start := startOf(d); {
			case text(d, "uuid") == own:
				offered++
			case start < 4:
				return fmt.Errorf("%s is offered, which begins in the administrator's partition", d.Name)
			}
		}
		if offered != 1 {
			return fmt.Errorf("the partition is offered %d times", offered)
		}
		return nil
	})

	s := newSpace(t)
	s.template("own", asks(request("gpu", wanted(migClass, all(has("uuid"), is("uuid", own))))))
	s.template("beside", asks(request("gpu", partitionOf("3g.40gb", all(is("parentUUID", uuid), "!"+has("uuid"))))))
	s.run(usesTemplate("own", "own"), usesTemplate("beside", "beside"))
	if smi := s.exec("own", work, "nvidia-smi -L"); strings.Count(smi, "MIG-") != 1 || !strings.Contains(smi, own) {
		t.Errorf("the pod with the administrator's partition %s sees\n%s", own, smi)
	}
	s.deletePods("own", "beside")
	left := gpu(t, machine, uuid)
	if len(left.MIG) != 1 || left.MIG[0].UUID != own {
		t.Errorf("afterwards the GPU has %+v, want the administrator's partition %s alone", left.MIG, own)
	}
}

// startOf is the first memory slice of a partition, which ends its name.
func startOf(d resourceapi.Device) int {
	start := -1
	_, _ = fmt.Sscanf(d.Name[strings.LastIndexByte(d.Name, '-')+1:], "%d", &start)
	return start
}

// partitionKilledInTheMiddle is a part of TestKilledInTheMiddle, with the plugin
// that has fault points: the steps that only a partition has, one of each way. All
// others are in TestAKilledPluginLeavesNoPartitionBehind, without a kubelet.
func partitionKilledInTheMiddle(t *testing.T) {
	n, machine := node(t, "node-a")
	uuid := gpus(t, machine, h100)[1].UUID
	partitioned := asks(request("gpu", partitionOf("3g.40gb", is("parentUUID", uuid))))
	t.Run("prepare killed at migGPUInstanceCreated", func(t *testing.T) {
		s := newSpace(t)
		s.template("partition", partitioned)
		before := pluginPod(t, n)
		arm(t, n, "migGPUInstanceCreated")
		s.start(usesTemplate("one", "partition"))
		killAt(t, n, "migGPUInstanceCreated")
		pluginIsBack(t, n, before)
		s.nudge("one")
		s.running("one")
		if got := profilesOf(gpu(t, machine, uuid)); !slices.Equal(got, []string{"3g.40gb"}) {
			t.Errorf("the GPU has partitions %v, want one 3g.40gb", got)
		}
	})
	t.Run("unprepare killed at migGPUInstanceDestroyed", func(t *testing.T) {
		s := newSpace(t)
		s.template("partition", partitioned)
		s.run(usesTemplate("one", "partition"))
		before := pluginPod(t, n)
		arm(t, n, "migGPUInstanceDestroyed")
		if err := client.CoreV1().Pods(s.name).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		killAt(t, n, "migGPUInstanceDestroyed")
		pluginIsBack(t, n, before)
		s.nudge("one")
		s.gone("one")
		if left, err := partitionsOn(n); err != nil || len(left) > 0 {
			t.Errorf("afterwards there are %v, %v", left, err)
		}
	})
}
