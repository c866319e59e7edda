package cdi

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"
)

// Spec is the content of a claim's spec.
type Spec struct {
	Data []byte
	// Digest identifies the content.
	Digest string
}

// Render works out the spec for the devices of a claim, from the driver that is
// installed now, and checks it by the CDI library's rules. It writes nothing. It
// may be called concurrently, also for the same claim: a call for a GPU that does
// not answer keeps no call for other GPUs waiting.
func (w *Writer) Render(ctx context.Context, devices []Device) (Spec, error) {
	if err := checkNames(devices); err != nil {
		return Spec{}, fmt.Errorf("CDI spec is not valid: %w", err)
	}
	common, gpus, err := w.edits.get(ctx, devices)
	if err != nil {
		return Spec{}, err
	}
	parts := make([]*part, len(devices))
	for i, d := range devices {
		if parts[i], err = gpus[i].with(d.Edits); err != nil {
			return Spec{}, fmt.Errorf("CDI spec is not valid: device %q: %w", d.Name, err)
		}
	}
	data, err := encode(w.options.Vendor+"/"+class, common, devices, parts)
	if err != nil {
		return Spec{}, fmt.Errorf("CDI spec: %w", err)
	}
	return Spec{Data: data, Digest: digestOf(data)}, nil
}

func checkNames(devices []Device) error {
	if len(devices) == 0 {
		return errors.New("no devices")
	}
	seen := map[string]bool{}
	for _, d := range devices {
		if err := parser.ValidateDeviceName(d.Name); err != nil {
			return err
		}
		if seen[d.Name] {
			return fmt.Errorf("device %q occurs twice", d.Name)
		}
		seen[d.Name] = true
	}
	return nil
}

// with is the part with a claim's edits after its own.
func (p *part) with(claim specs.ContainerEdits) (*part, error) {
	if isEmpty(&claim) {
		return p, nil
	}
	add := cdi.ContainerEdits{ContainerEdits: &claim}
	if err := add.Validate(); err != nil {
		return nil, err
	}
	merged := &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	merged.Append(&cdi.ContainerEdits{ContainerEdits: &p.edits}).Append(&add)
	return newPart(*merged.ContainerEdits)
}

func isEmpty(e *specs.ContainerEdits) bool {
	return len(e.Env) == 0 && len(e.DeviceNodes) == 0 && len(e.NetDevices) == 0 && len(e.Hooks) == 0 &&
		len(e.Mounts) == 0 && e.IntelRdt == nil && len(e.AdditionalGIDs) == 0
}

// encode makes a spec's JSON, the same as json.Marshal does, from that of its
// parts, which are most of it and seldom change.
func encode(kind string, common *part, devices []Device, parts []*part) ([]byte, error) {
	spec := &specs.Spec{Kind: kind, ContainerEdits: common.edits, Devices: make([]specs.Device, len(devices))}
	size := len(common.json) + 128
	for i, d := range devices {
		spec.Devices[i] = specs.Device{Name: d.Name, ContainerEdits: parts[i].edits}
		size += len(d.Name) + len(parts[i].json) + 64
	}
	version, err := specs.MinimumRequiredVersion(spec)
	if err != nil {
		return nil, err
	}
	// Kinds and names are of letters, digits and a few signs that need no escape.
	data := append(make([]byte, 0, size), `{"cdiVersion":`...)
	data = strconv.AppendQuote(data, version)
	data = append(data, `,"kind":`...)
	data = strconv.AppendQuote(data, kind)
	data = append(data, `,"devices":[`...)
	for i, d := range devices {
		if i > 0 {
			data = append(data, ',')
		}
		data = append(data, `{"name":`...)
		data = strconv.AppendQuote(data, d.Name)
		data = append(data, `,"containerEdits":`...)
		data = append(data, parts[i].json...)
		data = append(data, '}')
	}
	data = append(data, `],"containerEdits":`...)
	data = append(data, common.json...)
	return append(data, '}'), nil
}
