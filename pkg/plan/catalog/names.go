package catalog

import (
	"cmp"
	"slices"
	"strings"
)

// mostAlike is how many names an error offers.
const mostAlike = 8

// namesAlike are the names that a wrong one may have meant: those of the same family,
// those that it is a part of, and those a few characters away, the nearest first.
func namesAlike(types []InstanceType, wrong string) []string {
	type candidate struct {
		name string
		// other is 0 for one of the same family ("p5" of "p5.48xlarge"), else 1.
		other, distance int
	}
	wrong = strings.ToLower(strings.TrimSpace(wrong))
	if wrong == "" {
		return nil
	}
	var candidates []candidate
	for _, t := range types {
		name := strings.ToLower(t.Name)
		c := candidate{name: t.Name, other: 1, distance: editDistance(wrong, name)}
		if family, _, has := strings.Cut(name, "."); has && strings.HasPrefix(wrong, family+".") && family != "" {
			c.other = 0
		}
		if c.other == 0 || c.distance <= max(1, len(name)/5) || strings.Contains(name, wrong) {
			candidates = append(candidates, c)
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.other, b.other), cmp.Compare(a.distance, b.distance))
	})
	var names []string
	for _, c := range candidates[:min(len(candidates), mostAlike)] {
		names = append(names, c.name)
	}
	return names
}

// editDistance is how many bytes must be put in, taken out or replaced to make one
// string of another (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
