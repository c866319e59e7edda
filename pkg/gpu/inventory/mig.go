package inventory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"
)

// mig reads what the GPU can do with partitions and which it has.
func (g *gpuReading) mig() {
	capable := false
	g.gpu.MIG.Capable = &capable
	if !g.pass.has("nvmlDeviceGetMigMode") {
		return
	}
	current, pending, ret := g.dev.GetMigMode()
	switch {
	case ret == nvml.ERROR_NOT_SUPPORTED:
		return
	case !g.ok("MIG mode", ret):
		g.gpu.MIG.Capable = nil
		return
	}
	capable = true
	needsReset, ret := modeNeedsReset(g.pass.lib, g.dev)
	g.ok("architecture", ret)
	g.gpu.MIG.ModeNeedsReset = needsReset
	enabled, willBe := current == nvml.DEVICE_MIG_ENABLE, pending == nvml.DEVICE_MIG_ENABLE
	g.gpu.MIG.Enabled, g.gpu.MIG.Pending = &enabled, &willBe

	profiles := g.migProfiles()
	if !enabled || g.migInstances(profiles) {
		g.pass.instances[g.gpu.UUID] = true
	}
}

// ModeNeedsReset says whether a change of a GPU's MIG mode takes a reset of the
// GPU: it does on Ampere, and not since Hopper (MIG User Guide, "Enable MIG Mode").
// It is true where the architecture is not known, and beside an error.
func ModeNeedsReset(lib nvml.Interface, dev nvml.Device) (bool, error) {
	needsReset, ret := modeNeedsReset(lib, dev)
	if ret != nvml.SUCCESS {
		return needsReset, fmt.Errorf("read the GPU's architecture: %w", ret)
	}
	return needsReset, nil
}

func modeNeedsReset(lib nvml.Interface, dev nvml.Device) (bool, nvml.Return) {
	if lib.Extensions().LookupSymbol("nvmlDeviceGetArchitecture") != nil {
		return true, nvml.SUCCESS
	}
	architecture, ret := dev.GetArchitecture()
	switch ret {
	case nvml.SUCCESS:
		return architecture <= nvml.DEVICE_ARCH_AMPERE || architecture == nvml.DEVICE_ARCH_UNKNOWN, ret
	case nvml.ERROR_NOT_SUPPORTED:
		return true, nvml.SUCCESS
	}
	return true, ret
}

// migProfiles reads the GPU instance profiles, and returns them also as NVML
// takes them. Compute instance profiles, which divide an instance further, are
// not among them.
func (g *gpuReading) migProfiles() []nvml.GpuInstanceProfileInfo {
	if !g.pass.has("nvmlDeviceGetGpuInstanceProfileInfo") {
		return nil
	}
	var infos []nvml.GpuInstanceProfileInfo
	for index := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := g.dev.GetGpuInstanceProfileInfo(index)
		if !g.ok("MIG profile", ret) {
			continue
		}
		name := g.migProfileName(index, info)
		if name == "" {
			continue
		}
		infos = append(infos, info)
		g.gpu.MIG.Profiles = append(g.gpu.MIG.Profiles, MIGProfile{
			Name:            name,
			ID:              int(info.Id),
			Index:           index,
			Slices:          int(info.SliceCount),
			MemoryMiB:       info.MemorySizeMB,
			Multiprocessors: int(info.MultiprocessorCount),
			CopyEngines:     int(info.CopyEngineCount),
			Decoders:        int(info.DecoderCount),
			Encoders:        int(info.EncoderCount),
			JPEGEngines:     int(info.JpegCount),
			OFAEngines:      int(info.OfaCount),
			MaxInstances:    int(info.InstanceCount),
			Placements:      g.migPlacements(info),
		})
	}
	slices.SortStableFunc(g.gpu.MIG.Profiles, func(a, b MIGProfile) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Index, b.Index))
	})
	return infos
}

func (g *gpuReading) migPlacements(info nvml.GpuInstanceProfileInfo) []MIGPlacement {
	if !g.pass.has("nvmlDeviceGetGpuInstancePossiblePlacements_v2", "nvmlDeviceGetGpuInstancePossiblePlacements") {
		return nil
	}
	placements, ret := g.dev.GetGpuInstancePossiblePlacements(&info)
	if !g.ok("MIG placements", ret) {
		return nil
	}
	result := make([]MIGPlacement, 0, len(placements))
	for _, p := range placements {
		result = append(result, MIGPlacement{Start: int(p.Start), Size: int(p.Size)})
	}
	slices.SortFunc(result, comparePlacements)
	return result
}

func comparePlacements(a, b MIGPlacement) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Size, b.Size))
}

// NamedMIGProfile is a GPU instance profile as NVML takes it, with its name.
type NamedMIGProfile struct {
	// Name is the one that [MIGProfile.Name] has.
	Name string
	Info nvml.GpuInstanceProfileInfo
}

// MIGProfiles yields the GPU instance profiles of a GPU under the names by which
// a [Node] knows them, in the order of NVML's constants. Two may mean the same
// profile. A profile that cannot be read is an error in its place. The library
// must have nvmlDeviceGetGpuInstanceProfileInfo.
func MIGProfiles(ctx context.Context, lib nvml.Interface, dev nvml.Device) iter.Seq2[NamedMIGProfile, error] {
	return func(yield func(NamedMIGProfile, error) bool) {
		g := &gpuReading{pass: newReading(lib, nil, klog.FromContext(ctx)), dev: dev}
		memory, unnamed := dev.GetMemoryInfo()
		if unnamed == nvml.SUCCESS && memory.Total > 0 {
			g.gpu.MemoryBytes = &memory.Total
		}
		for index := range nvml.GPU_INSTANCE_PROFILE_COUNT {
			info, ret := dev.GetGpuInstanceProfileInfo(index)
			if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT {
				continue
			}
			profile, err := NamedMIGProfile{Info: info}, error(nil)
			if ret != nvml.SUCCESS {
				err = fmt.Errorf("read the MIG profile with the number %d: %w", index, ret)
			} else if profile.Name = g.migProfileName(index, info); profile.Name == "" {
				yield(profile, fmt.Errorf("name the MIG profiles after the size of the GPU's memory: %w", unnamed))
				return
			}
			if !yield(profile, err) {
				return
			}
		}
	}
}

// migProfileName gives the name that nvidia-smi shows, "1g.10gb+me". It follows
// from the profile's size and kind. Newer libraries say it too, but may do so
// only in MIG mode (nvml.h), and a name must not change with the mode; so they
// are asked only where the size of the GPU's memory is not known.
func (g *gpuReading) migProfileName(index int, info nvml.GpuInstanceProfileInfo) string {
	if g.gpu.MemoryBytes == nil {
		return g.migProfileNameFromNVML(index)
	}
	// go-nvlib rounds the memory as nvidia-smi does; its own names lack some
	// kinds of profile, so only the size is taken.
	profile, err := g.pass.words.NewMigProfile(nvml.GPU_INSTANCE_PROFILE_1_SLICE, nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE,
		nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, info.MemorySizeMB, *g.gpu.MemoryBytes)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%dg.%dgb%s", info.SliceCount, profile.GetInfo().GB, migProfileSuffix(index))
}

func (g *gpuReading) migProfileNameFromNVML(index int) string {
	if !g.pass.has("nvmlDeviceGetGpuInstanceProfileInfoV") {
		return ""
	}
	handler := g.dev.GetGpuInstanceProfileInfoV(index)
	if handler == (nvml.GpuInstanceProfileInfoHandler{}) {
		return "" // of a fake, which cannot make one that works
	}
	info, ret := handler.V2()
	if ret != nvml.SUCCESS {
		return ""
	}
	return strings.TrimPrefix(cString(info.Name[:]), "MIG ")
}

// migProfileSuffix is the suffix of a profile's name by its
// NVML_GPU_INSTANCE_PROFILE_* constant (nvml.h). The REV2 profile is a plain one
// of another size.
func migProfileSuffix(index int) string {
	switch index {
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:
		return "+me"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME:
		return "+me.all"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:
		return "-me"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX,
		nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:
		return "+gfx"
	}
	return ""
}

// migInstances reads the GPU instances that exist, and says whether it read all.
func (g *gpuReading) migInstances(profiles []nvml.GpuInstanceProfileInfo) bool {
	if !g.pass.has("nvmlDeviceGetGpuInstances") || !g.pass.has("nvmlGpuInstanceGetInfo") {
		return false
	}
	all := len(profiles) > 0
	uuids := g.migUUIDs()
	asked := map[uint32]bool{}
	for _, profile := range profiles {
		// Two constants may mean one profile.
		if asked[profile.Id] {
			continue
		}
		asked[profile.Id] = true
		instances, ret := g.dev.GetGpuInstances(&profile)
		if !g.ok("GPU instances", ret) {
			all = false
			continue
		}
		for _, instance := range instances {
			info, ret := instance.GetInfo()
			if !g.ok("GPU instance", ret) {
				all = all && ret == nvml.ERROR_NOT_FOUND // destroyed just now
				continue
			}
			g.gpu.MIG.Instances = append(g.gpu.MIG.Instances, MIGInstance{
				ID:        int(info.Id),
				ProfileID: int(info.ProfileId),
				Placement: MIGPlacement{Start: int(info.Placement.Start), Size: int(info.Placement.Size)},
				UUID:      uuids[int(info.Id)],
			})
		}
	}
	slices.SortFunc(g.gpu.MIG.Instances, func(a, b MIGInstance) int {
		return cmp.Or(comparePlacements(a.Placement, b.Placement), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// migUUIDs returns the UUID of the first MIG device (compute instance) of each
// GPU instance, by the instance's id.
func (g *gpuReading) migUUIDs() map[int]string {
	uuids := map[int]string{}
	if !g.pass.has("nvmlDeviceGetMaxMigDeviceCount") || !g.pass.has("nvmlDeviceGetMigDeviceHandleByIndex") || !g.pass.has("nvmlDeviceGetGpuInstanceId") {
		return uuids
	}
	count, ret := g.dev.GetMaxMigDeviceCount()
	if !g.ok("number of MIG devices", ret) {
		return uuids
	}
	for i := range count {
		mig, ret := g.dev.GetMigDeviceHandleByIndex(i)
		if !g.ok("MIG device", ret) {
			continue
		}
		id, ret := mig.GetGpuInstanceId()
		if !g.ok("GPU instance of MIG device", ret) {
			continue
		}
		if uuid, ret := mig.GetUUID(); g.ok("UUID of MIG device", ret) && uuids[id] == "" {
			uuids[id] = uuid
		}
	}
	return uuids
}
