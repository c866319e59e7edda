package exporter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	dto "github.com/prometheus/client_model/go"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// labels are names with their values; an empty value is as none.
type labels map[string]string

// labelSet is the labels of a series as the encoders want them, by name.
type labelSet struct {
	pairs []*dto.LabelPair
	// signature tells sets apart.
	signature string
}

func (l labels) set() labelSet {
	names := make([]string, 0, len(l))
	for name, value := range l {
		if value != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	values := make([]string, len(names))
	pairs := make([]dto.LabelPair, len(names))
	set := labelSet{pairs: make([]*dto.LabelPair, len(names))}
	var sign strings.Builder
	for i, name := range names {
		values[i] = clean(l[name])
		pairs[i].Name, pairs[i].Value = &names[i], &values[i]
		set.pairs[i] = &pairs[i]
		// No value has control characters.
		for _, part := range []string{name, "\x00", values[i], "\x00"} {
			sign.WriteString(part)
		}
	}
	set.signature = sign.String()
	return set
}

// labelKey is all that the labels of a series are made of. What it points to is never
// changed.
type labelKey struct {
	gpu                     gpumetrics.GPUIdentity
	uuid, profile, instance string
	owner                   *ownership.Owner
	consumer                *ownership.Consumer
	container               string
	// account is one whose device was as device says.
	account *account
	device  ownership.Device
}

// labelCache keeps labels from one sample to the next: making them is most of the work
// of a sample, and while owners stay the same so do they.
type labelCache struct{ last, now map[labelKey]labelSet }

// turn begins a new sample: labels that the last one did not use are forgotten.
func (c *labelCache) turn() { c.last, c.now = c.now, make(map[labelKey]labelSet, len(c.now)) }

func (c *labelCache) of(key labelKey, labels func() labels) labelSet {
	key.gpu.Minor = nil // Not among these labels, and another pointer with every reading.
	set, ok := c.last[key]
	if !ok {
		set = labels().set()
	}
	c.now[key] = set
	return set
}

// clean makes a text one that all encodings can carry: one bad label value would cost
// the whole scrape.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
}

// gpuLabels are those by which all series of a GPU can be joined.
func (e *Exporter) gpuLabels(gpu *gpumetrics.GPUIdentity) labels {
	l := labels{labelUUID: gpu.UUID, labelHostname: e.o.Hostname}
	if gpu.ModelName != "" || gpu.PCIBusID != "" {
		l[labelGPU] = strconv.Itoa(gpu.Index)
		l[labelModelName] = gpu.ModelName
	}
	return l
}

// deviceLabels are those of DCGM's fields.
func (e *Exporter) deviceLabels(d *gpumetrics.Device, a *attribution) labels {
	l := e.gpuLabels(&d.GPU)
	l[labelPCIBusID] = dcgmBusID(d.GPU.PCIBusID)
	l[labelDevice] = "nvidia" + strconv.Itoa(d.GPU.Index)
	if d.GPU.Minor != nil {
		l[labelDevice] = "nvidia" + strconv.Itoa(*d.GPU.Minor)
	}
	l.place(d.Profile, d.GPUInstanceID)
	for i, f := range e.o.Fields {
		if f.Type == gpumetrics.Label && i < len(d.Values) && d.Values[i].Present {
			l[f.Name] = d.Values[i].Text
		}
	}
	if u := a.alone; u != nil {
		l[labelNamespace], l[labelPod], l[labelContainer] = u.consumer.Namespace, u.consumer.Name, u.container.Name
		e.podLabels(l, u.consumer)
	}
	return l
}

func (l labels) place(profile string, instance *int) {
	l[labelInstanceProfile], l[labelInstanceID] = profile, instanceText(instance)
}

// instanceText is the number of a GPU instance, empty for a whole GPU.
func instanceText(instance *int) string {
	if instance == nil {
		return ""
	}
	return strconv.Itoa(*instance)
}

// hold says by which claim a device is held.
func (l labels) hold(o *ownership.Owner) {
	l[labelDevice] = o.Device.Name
	l[labelDeviceUUID] = o.Device.UUID
	l[labelShareID] = string(o.Device.ShareID)
	l[labelClaim], l[labelClaimUID] = o.Claim.Name, string(o.Claim.UID)
	l[labelRequest] = o.Request
	// Pods are in their claim's namespace.
	l[labelNamespace] = o.Claim.Namespace
	if o.AdminAccess {
		l[labelAdminAccess] = "true"
	}
}

func (l labels) pod(namespace, name, uid string, workload *ownership.Workload) {
	l[labelNamespace], l[labelPod], l[labelPodUID] = namespace, name, uid
	if workload != nil {
		l[labelWorkloadKind], l[labelWorkload] = workload.Kind, workload.Name
	}
}

func (e *Exporter) consumerLabels(l labels, c *ownership.Consumer) {
	l.pod(c.Namespace, c.Name, string(c.UID), c.Workload)
	e.podLabels(l, c)
}

// podLabels adds the labels of the pod that are wanted. Of two that become the same
// name the first wins, whatever the pod.
func (e *Exporter) podLabels(l labels, c *ownership.Consumer) {
	for _, key := range e.o.PodLabels {
		name := podLabel(key)
		if _, there := l[name]; !there && c.Labels[key] != "" {
			l[name] = c.Labels[key]
		}
	}
}

// podLabel is the name that a label of pods has here, as kube-state-metrics makes it.
func podLabel(key string) string {
	return "label_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, key)
}

// dcgmBusID writes a PCI address as NVML and DCGM do: upper case, and 8 digits of the
// domain.
func dcgmBusID(address string) string {
	domain, rest, ok := strings.Cut(address, ":")
	number, err := strconv.ParseUint(domain, 16, 32)
	if !ok || err != nil {
		return address
	}
	return fmt.Sprintf("%08X:%s", number, strings.ToUpper(rest))
}
