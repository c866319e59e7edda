// Package strict reads the JSON of opaque device configs. Tenants write them, so it
// refuses whatever it does not know, and takes no longer for a hostile text than for
// a good one. It knows JSON and quantities, and no kind of config.
package strict

import (
	"bytes"
	gojson "encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
)

// MaxSize is how long a config may be, in bytes: what the API server allows.
const MaxSize = resourceapi.OpaqueParametersMaxLength

// QuantityPattern is what a quantity may look like. It is narrower than what
// Kubernetes parses: "1e-2000000000" is a quantity too, and keeps the parser busy
// for minutes.
const QuantityPattern = `^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`

var quantity = regexp.MustCompile(QuantityPattern)

// TypeOf says which version and kind the config says it is. It fails on what is no
// JSON object, and on one that is too long.
func TypeOf(data []byte) (metav1.TypeMeta, error) {
	var meta metav1.TypeMeta
	if len(data) > MaxSize {
		return meta, fmt.Errorf("config is %d bytes long; at most %d are allowed", len(data), MaxSize)
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &meta); err != nil {
		return metav1.TypeMeta{}, readable(err)
	}
	if meta.APIVersion == "" || meta.Kind == "" {
		return metav1.TypeMeta{}, errors.New("config must have apiVersion and kind")
	}
	return meta, nil
}

// Decode reads the config, whose type TypeOf has read, into a pointer to a struct.
// Unknown and duplicate fields, values of a wrong type, and what is no quantity at
// one of the paths (such as "memory.softLimit") are errors that name the field.
func Decode(data []byte, into any, quantities ...string) error {
	decoder := gojson.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := checkQuantities(decoder, "", quantities); err != nil {
		return err
	}
	wrong, err := json.UnmarshalStrict(data, into)
	if err != nil {
		return readable(err)
	}
	if len(wrong) > 0 {
		oneLine := strings.ReplaceAll(errors.Join(wrong...).Error(), "\n", "; ") // names in it are quoted
		return errors.New(Clip(oneLine))
	}
	return nil
}

// checkQuantities reads the next value, which is at the path. It goes through the
// tokens rather than a decoded map, so that no duplicate field escapes it.
func checkQuantities(decoder *gojson.Decoder, path string, quantities []string) error {
	token, err := decoder.Token()
	if err != nil {
		return fmt.Errorf("malformed JSON: %w", err)
	}
	if token != nil && slices.Contains(quantities, path) && !quantity.MatchString(fmt.Sprint(token)) {
		return fmt.Errorf("%s: %s is not a quantity; write it like 512Mi or 10Gi", path, Clip(fmt.Sprintf("%q", fmt.Sprint(token))))
	}
	if token != gojson.Delim('{') && token != gojson.Delim('[') {
		return nil
	}
	for decoder.More() {
		child := path + "[]"
		if token == gojson.Delim('{') {
			key, err := decoder.Token()
			if err != nil {
				return fmt.Errorf("malformed JSON: %w", err)
			}
			child = strings.TrimPrefix(fmt.Sprintf("%s.%s", path, key), ".")
		}
		if err := checkQuantities(decoder, child, quantities); err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil { // the closing bracket
		return fmt.Errorf("malformed JSON: %w", err)
	}
	return nil
}

// How the JSON library words a value of a wrong type; its error type is internal.
var (
	wrongField = regexp.MustCompile(`^json: cannot unmarshal (.*) into Go struct field [^.]*\.(.*) of type .*$`)
	wrongValue = regexp.MustCompile(`^json: cannot unmarshal (.*) into Go value of type .*$`)
)

// readable is the JSON library's error in words that do not take knowing Go.
func readable(err error) error {
	text := err.Error()
	if m := wrongField.FindStringSubmatch(text); m != nil {
		return errors.New(Clip(fmt.Sprintf("%s: does not take %s", m[2], m[1])))
	}
	if m := wrongValue.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("config must be a JSON object, not %s", Clip(m[1]))
	}
	return errors.New(Clip("malformed JSON: " + text))
}

// Clip shortens what a tenant wrote, for errors that end in logs and Events.
func Clip(s string) string {
	const most = 500
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
