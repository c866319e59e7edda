// Package report writes plans and explanations for people, as "apportion simulate" and
// "apportion explain" print them. It decides nothing.
package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/internal/display"
	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// Plan writes a plan for people: nodes, pods, pods without a place, and sums.
func Plan(out io.Writer, plan *simulate.Plan) error {
	var sections []string
	for _, rows := range [][][]string{nodeRows(plan), podRows(plan)} {
		var text strings.Builder
		if len(rows) > 1 {
			if err := display.PrintTable(&text, withoutEmpty(rows)); err != nil {
				return err
			}
			sections = append(sections, text.String())
		}
	}
	if hasUnlike(plan) {
		sections[len(sections)-1] += "* kube-scheduler would choose other devices of this node.\n"
	}
	sections = append(sections, notPlacedTexts(plan.NotPlaced)...)
	sections = append(sections, totalsText(plan)+"\n")
	_, err := io.WriteString(out, strings.Join(sections, "\n"))
	return err
}

// withoutEmpty leaves out columns in which nothing stands.
func withoutEmpty(rows [][]string) [][]string {
	result := make([][]string, len(rows))
	for column := range rows[0] {
		if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[column] != "-" }) {
			continue
		}
		for i := range rows {
			result[i] = append(result[i], rows[i][column])
		}
	}
	return result
}

func nodeRows(plan *simulate.Plan) [][]string {
	rows := [][]string{{"NODE", "INSTANCE TYPE", "PRICE", "OR", "REQUIRED LABELS", "PODS", "UNUSED"}}
	for _, n := range plan.Nodes {
		rows = append(rows, []string{display.Visible(n.Name), "-", "-", "-", "-", strconv.Itoa(len(n.Pods)), display.Visible(unusedText(n.Unused))})
	}
	for _, n := range plan.NodeClaims {
		var others []string
		for _, survivor := range n.Survivors {
			if survivor.InstanceType != n.InstanceType {
				others = append(others, survivor.InstanceType)
			}
		}
		rows = append(rows, []string{
			n.Name, display.Visible(n.InstanceType), priceText(n.Price), display.Visible(display.OrDash(someNames(others, 2))), display.Visible(display.OrDash(labelsText(n))),
			strconv.Itoa(len(n.Pods)), display.Visible(unusedText(n.Unused)),
		})
	}
	return rows
}

// someNames names the first of many.
func someNames(names []string, most int) string {
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func priceText(price float64) string {
	if price == 0 {
		return "-"
	}
	return strconv.FormatFloat(price, 'f', -1, 64)
}

// labelsText are the labels that the pods need.
func labelsText(n simulate.NodeClaim) string {
	var texts []string
	for _, key := range n.RequiredLabels {
		texts = append(texts, key+"="+n.Labels[key])
	}
	return strings.Join(texts, ",")
}

// unusedText says what a node has left, "-" for no device.
func unusedText(u simulate.Unused) string {
	var texts []string
	for _, d := range u.Devices {
		texts = append(texts, fmt.Sprintf("%d x %s", d.Count, d.Kind))
	}
	for _, p := range u.Parts {
		if p.Largest != "" {
			texts = append(texts, fmt.Sprintf("up to %s of %s", p.Largest, p.Device))
			continue
		}
		texts = append(texts, fmt.Sprintf("%s of %s", amountsText(p.Capacity, "a share"), p.Device))
	}
	return display.OrDash(strings.Join(texts, "; "))
}

func podRows(plan *simulate.Plan) [][]string {
	rows := [][]string{{"POD", "NODE", "CLAIM", "DEVICES"}}
	add := func(node string, pods []simulate.Pod) {
		for _, pod := range pods {
			name := display.Visible(pod.Namespace + "/" + pod.Name)
			if pod.Unlike {
				name += " *"
			}
			for _, claim := range pod.Allocated {
				rows = append(rows, []string{name, display.Visible(node), display.Visible(claim), "allocated before"})
			}
			if len(pod.Claims)+len(pod.Allocated) == 0 {
				rows = append(rows, []string{name, display.Visible(node), "-", "-"})
			}
			for _, claim := range pod.Claims {
				rows = append(rows, []string{name, display.Visible(node), display.Visible(claim.Name), display.Visible(display.OrDash(devicesText(claim.Devices)))})
			}
		}
	}
	for _, n := range plan.Nodes {
		add(n.Name, n.Pods)
	}
	for _, n := range plan.NodeClaims {
		add(n.Name, n.Pods)
	}
	return rows
}

func hasUnlike(plan *simulate.Plan) bool {
	unlike := func(pod simulate.Pod) bool { return pod.Unlike }
	return slices.ContainsFunc(plan.Nodes, func(n simulate.NodePods) bool { return slices.ContainsFunc(n.Pods, unlike) }) ||
		slices.ContainsFunc(plan.NodeClaims, func(n simulate.NodeClaim) bool { return slices.ContainsFunc(n.Pods, unlike) })
}

// devicesText counts whole devices of a kind, and says what shares take of which device.
func devicesText(devices []simulate.Device) string {
	var texts []string
	counts := map[string]int{}
	var kinds []string
	for _, d := range devices {
		kind := cmp.Or(d.Kind, d.Device)
		switch {
		case d.AdminAccess:
			kind += " (admin access)"
		case d.Share:
			texts = append(texts, fmt.Sprintf("%s of %s", amountsText(d.Consumed, "a share"), d.Device))
			continue
		}
		if counts[kind]++; counts[kind] == 1 {
			kinds = append(kinds, kind)
		}
	}
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d x %s", counts[kind], kind)
	}
	return strings.Join(append(kinds, texts...), ", ")
}

// amountsText writes what is not zero of capacities, but for the number of shares, which
// each share counts for one.
func amountsText(amounts map[resourceapi.QualifiedName]resource.Quantity, none string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if quantity := amounts[name]; name != devicemodel.CapacityShares && !quantity.IsZero() {
			texts = append(texts, fmt.Sprintf("%s %s", name, quantity.String()))
		}
	}
	return cmp.Or(strings.Join(texts, ", "), none)
}

// notPlacedTexts says why pods have no place. Pods next to each other for which the same
// is to be said, but for their names, stand together.
func notPlacedTexts(pods []simulate.NotPlaced) []string {
	var texts []string
	var names []string
	last := ""
	flush := func(why string) {
		if len(names) > 0 {
			texts = append(texts, "NOT PLACED: "+display.Visible(someNames(names, 4))+"\n"+why)
		}
		names = nil
	}
	why := ""
	for _, pod := range pods {
		text := whyNotPlaced(pod)
		if key := strings.ReplaceAll(text, pod.Name, ""); key != last || len(names) == 0 {
			flush(why)
			last, why = key, text
		}
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	flush(why)
	return texts
}

// whyNotPlaced gives the reasons, each with the candidates to which it applies. Reasons
// that differ in their numbers only count as the same.
func whyNotPlaced(pod simulate.NotPlaced) string {
	var text strings.Builder
	if pod.Reason != "" {
		fmt.Fprintf(&text, "  %s\n", display.Visible(pod.Reason))
	}
	type group struct {
		kind   simulate.CandidateKind
		reason string
	}
	var groups []group
	names, reasons := map[group][]string{}, map[group][]string{}
	for _, c := range pod.Candidates {
		reason := reasonText(c)
		g := group{c.Kind, numbers.ReplaceAllString(reason, "#")}
		if names[g] == nil {
			groups = append(groups, g)
		}
		name := c.Name
		if c.Kind == simulate.KindNodeClaim {
			name += " as " + c.InstanceType
		}
		names[g], reasons[g] = append(names[g], name), append(reasons[g], reason)
	}
	for _, g := range groups {
		reason := reasons[g][0]
		if len(slices.Compact(slices.Clone(reasons[g]))) > 1 {
			reason += " (numbers of the first)"
		}
		fmt.Fprintf(&text, "  %s: %s\n", display.Visible(someNames(names[g], 3)), display.Visible(reason))
	}
	return text.String()
}

// numbers are those that stand for themselves, and not those in names.
var numbers = regexp.MustCompile(`\b\d+\b`)

func reasonText(c simulate.Candidate) string {
	if c.Unknown {
		return "not known: " + c.Reason
	}
	return c.Reason
}

func totalsText(plan *simulate.Plan) string {
	t := plan.Totals
	text := fmt.Sprintf("%s: %d on nodes that exist, %d on %s", counted(t.Pods, "pod"), t.OnNodes, t.OnNodeClaims, counted(t.NodeClaims, "new node"))
	if t.NodeClaims > 0 {
		text += fmt.Sprintf(" (at least %d needed)", plan.LowerBound.Nodes)
	}
	text += fmt.Sprintf(", %d not placed", t.NotPlaced)
	if t.Price > 0 {
		text += ", price " + strconv.FormatFloat(t.Price, 'f', -1, 64)
	}
	return text
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Explanation writes where a pod fits.
func Explanation(out io.Writer, e *simulate.Explanation) error {
	if _, err := fmt.Fprintln(out, display.Visible(explanationText(e))); err != nil {
		return err
	}
	for _, candidates := range [][]simulate.Candidate{e.Nodes, e.InstanceTypes} {
		if len(candidates) == 0 {
			continue
		}
		rows := [][]string{{"NODE", "PRICE", "FITS", "DEVICES OR REASON"}}
		if candidates[0].Kind == simulate.KindInstanceType {
			rows[0][0] = "INSTANCE TYPE"
		}
		for _, c := range candidates {
			fits, why := "no", reasonText(c)
			if c.Unknown {
				fits = "?"
			}
			if c.Fits {
				fits, why = "yes", claimsText(c.Claims)
			}
			rows = append(rows, []string{display.Visible(c.Name), priceText(c.Price), fits, display.Visible(display.OrDash(why))})
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
		if err := display.PrintTable(out, withoutEmpty(rows)); err != nil {
			return err
		}
	}
	return nil
}

func explanationText(e *simulate.Explanation) string {
	name := "Pod " + e.Namespace + "/" + e.Name
	if e.Reason != "" {
		return name + " fits nowhere: " + e.Reason
	}
	count := func(all []simulate.Candidate) int {
		n := 0
		for _, c := range all {
			if c.Fits {
				n++
			}
		}
		return n
	}
	return fmt.Sprintf("%s fits on %d of %s and on %d of %s.", name,
		count(e.Nodes), counted(len(e.Nodes), "node"), count(e.InstanceTypes), counted(len(e.InstanceTypes), "instance type"))
}

// claimsText names the devices of claims, with their names on nodes.
func claimsText(claims []simulate.Claim) string {
	var texts []string
	for _, claim := range claims {
		var names []string
		for _, d := range claim.Devices {
			names = append(names, d.Device)
		}
		texts = append(texts, fmt.Sprintf("%s: %s (%s)", claim.Name, display.OrDash(devicesText(claim.Devices)), someNames(names, 2)))
	}
	return strings.Join(texts, "; ")
}
