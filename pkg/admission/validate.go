package admission

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"apportion.dev/apportion/api/resource"
	"apportion.dev/apportion/api/resource/v1alpha1"
)

// Resources of the group resource.k8s.io that hold parameters.
const (
	resourceClaims    = "resourceclaims"
	resourceTemplates = "resourceclaimtemplates"
	deviceClasses     = "deviceclasses"
)

// subject is what of an object is checked: the parameters, in order, and the
// requests that they are for.
type subject struct {
	// path is where the list of parameters is in the object.
	path *field.Path
	// config has no requests in a class.
	config []resourceapi.DeviceClaimConfiguration
	// requests are the names of a claim's requests; "main/sub" for an alternative
	// of a prioritized list. A class has none.
	requests []string
	// class is whether the object is a DeviceClass, which may say more than a claim.
	class   bool
	deleted bool
}

// The parts of the objects that are read are the same in v1, v1beta2 and v1beta1 of
// the API, so one set of types serves for all.
type (
	claimSpec struct {
		Devices struct {
			Requests []struct {
				Name           string `json:"name"`
				FirstAvailable []struct {
					Name string `json:"name"`
				} `json:"firstAvailable"`
			} `json:"requests"`
			Config []resourceapi.DeviceClaimConfiguration `json:"config"`
		} `json:"devices"`
	}
	metadata struct {
		DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
	}
	claimObject struct {
		Metadata metadata  `json:"metadata"`
		Spec     claimSpec `json:"spec"`
	}
	templateObject struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			Spec claimSpec `json:"spec"`
		} `json:"spec"`
	}
	classObject struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			Config []resourceapi.DeviceClaimConfiguration `json:"config"`
		} `json:"spec"`
	}
)

// errOtherResource says that an object is of a kind without parameters.
var errOtherResource = errors.New("holds no parameters for devices")

// readSubject reads the JSON of an object of a resource.
func readSubject(resource string, object []byte) (subject, error) {
	path := field.NewPath("spec")
	switch resource {
	case resourceClaims:
		var claim claimObject
		err := json.Unmarshal(object, &claim)
		return claim.Spec.subject(path.Child("devices", "config"), claim.Metadata), err
	case resourceTemplates:
		var template templateObject
		err := json.Unmarshal(object, &template)
		return template.Spec.Spec.subject(path.Child("spec", "devices", "config"), template.Metadata), err
	case deviceClasses:
		var class classObject
		err := json.Unmarshal(object, &class)
		return subject{path: path.Child("config"), config: class.Spec.Config, class: true, deleted: class.Metadata.DeletionTimestamp != nil}, err
	default:
		return subject{}, fmt.Errorf("resource %q %w", resource, errOtherResource)
	}
}

func (s claimSpec) subject(path *field.Path, meta metadata) subject {
	var requests []string
	for _, request := range s.Devices.Requests {
		if len(request.FirstAvailable) == 0 {
			requests = append(requests, request.Name)
		}
		for _, alternative := range request.FirstAvailable {
			requests = append(requests, resourceclaim.CreateSubRequestRef(request.Name, alternative.Name))
		}
	}
	return subject{path: path, config: s.Devices.Config, requests: requests, deleted: meta.DeletionTimestamp != nil}
}

// sameParameters says whether two versions of an object have the same parameters:
// then the newer one is no worse than what is stored already.
func (s subject) sameParameters(old subject) bool { return reflect.DeepEqual(s.config, old.config) }

// validate checks all parameters of a subject that are for a driver. The errors
// have the path in the object, and there is one for each thing that is wrong.
func (s subject) validate(driver string) field.ErrorList {
	var errs field.ErrorList
	decoded := make([]v1alpha1.Config, len(s.config)) // nil where it is another driver's, or bad
	bad := make([]bool, len(s.config))
	for i, entry := range s.config {
		if entry.Opaque == nil || entry.Opaque.Driver != driver {
			continue
		}
		config, found := decode(s.parameters(i), driver, entry.Opaque.Parameters.Raw)
		if len(found) == 0 && !s.class {
			if err := v1alpha1.ValidateForClaim(config).ToAggregate(); err != nil {
				found = below(s.parameters(i), err)
			}
		}
		if len(found) > 0 {
			errs, bad[i] = append(errs, found...), true
			continue
		}
		decoded[i] = config
	}
	return append(errs, s.validateRequests(decoded, bad)...)
}

func (s subject) parameters(i int) *field.Path {
	return s.path.Index(i).Child("opaque", "parameters")
}

// decode reads and checks one driver's parameters.
func decode(path *field.Path, driver string, parameters []byte) (v1alpha1.Config, field.ErrorList) {
	if len(parameters) > resourceapi.OpaqueParametersMaxLength {
		return nil, field.ErrorList{field.TooLong(path, "", resourceapi.OpaqueParametersMaxLength)}
	}
	config, err := resource.DecodeFor(driver, parameters)
	if err != nil {
		return nil, below(path, err)
	}
	if found := config.Validate(); len(found) > 0 {
		return nil, below(path, found.ToAggregate())
	}
	return config, nil
}

// validateRequests checks for each request what its parameters say together. Those
// of the request's class are not known here: the driver has the last word on them.
func (s subject) validateRequests(decoded []v1alpha1.Config, bad []bool) field.ErrorList {
	index := map[*resourceapi.OpaqueDeviceConfiguration]int{}
	var entries []resourceapi.DeviceAllocationConfiguration
	for i, entry := range s.config {
		entries = append(entries, resourceapi.DeviceAllocationConfiguration{Requests: entry.Requests, DeviceConfiguration: entry.DeviceConfiguration})
		if entry.Opaque != nil {
			index[entry.Opaque] = i
		}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for _, request := range s.requests {
		var indices []int
		for _, entry := range resourceclaim.ConfigForResult(entries, resourceapi.DeviceRequestAllocationResult{Request: request}) {
			i := index[entry.Opaque]
			if bad[i] {
				indices = nil // reported already, and what is left may be no mistake
				break
			}
			if decoded[i] != nil {
				indices = append(indices, i)
			}
		}
		for _, together := range byKind(decoded, indices) {
			if key := fmt.Sprint(together); !seen[key] {
				seen[key] = true
				errs = append(errs, s.resolve(request, decoded, together)...)
			}
		}
	}
	return errs
}

// byKind splits the indices of parameters by their type: those of one kind of
// device have no effect on another.
func byKind(decoded []v1alpha1.Config, indices []int) [][]int {
	var kinds []reflect.Type
	groups := map[reflect.Type][]int{}
	for _, i := range indices {
		kind := reflect.TypeOf(decoded[i])
		if groups[kind] == nil {
			kinds = append(kinds, kind)
		}
		groups[kind] = append(groups[kind], i)
	}
	var list [][]int
	for _, kind := range kinds {
		list = append(list, groups[kind])
	}
	return list
}

// resolve checks what parameters of one kind say together. Errors are at the last
// of them, which is the one that wins.
func (s subject) resolve(request string, decoded []v1alpha1.Config, indices []int) field.ErrorList {
	var configs []v1alpha1.Config
	var earlier []string
	for _, i := range indices {
		configs = append(configs, decoded[i])
		earlier = append(earlier, s.path.Index(i).String())
	}
	_, err := v1alpha1.Resolve(configs...)
	if err == nil {
		return nil
	}
	last := len(indices) - 1
	errs := below(s.parameters(indices[last]), err)
	if last > 0 {
		for _, e := range errs {
			e.Detail = fmt.Sprintf("%s (for request %q, together with %s)", e.Detail, request, strings.Join(earlier[:last], ", "))
		}
	}
	return errs
}

// below turns an error about parameters into errors with paths in the object that
// holds them.
func below(path *field.Path, err error) field.ErrorList {
	var errs field.ErrorList
	var aggregate utilerrors.Aggregate
	if errors.As(err, &aggregate) {
		for _, one := range aggregate.Errors() {
			errs = append(errs, below(path, one)...)
		}
		return errs
	}
	var at *field.Error
	if errors.As(err, &at) {
		moved := *at
		moved.Field = join(path.String(), at.Field)
		return field.ErrorList{&moved}
	}
	return field.ErrorList{field.Invalid(path, field.OmitValueType{}, strings.ReplaceAll(err.Error(), "\n", "; "))}
}

// join appends a relative path, which may be empty or begin with an index.
func join(path, rest string) string {
	switch {
	case rest == "" || rest == "<nil>": // how a nil path is written
		return path
	case strings.HasPrefix(rest, "["):
		return path + rest
	default:
		return path + "." + rest
	}
}
