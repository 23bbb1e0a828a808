package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// FormatLine is the first line of a policy file; docs/policy.md says what may follow.
const FormatLine = "aliquot policy 1"

// Limits of a policy file.
const (
	maxWindows = 100
	maxQueues  = 1_000
)

// IsPolicy says that a text begins as a policy file does.
func IsPolicy(text []byte) bool {
	first, _, _ := strings.Cut(string(text[:min(len(text), 100)]), "\n")
	return strings.Join(strings.Fields(first), " ") == FormatLine
}

// Error is what is wrong with a policy file, and where.
type Error struct {
	File string
	Line int // from 1
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Parse reads a policy file, and says what is wrong with it by itself: also what does not add up when no other queues are there, windows
// that overlap in the 400 days after a moment, and a placement in which nothing counts.
func Parse(name, text string, after time.Time) (*Policy, error) {
	if len(text) > api.MaxPolicyBytes {
		return nil, &Error{name, 1, fmt.Errorf("the file has %d bytes: a policy has %d at most", len(text), api.MaxPolicyBytes)}
	}
	p, err := Read(name, text)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(p.Overlap(after), p.Indifferent()); err != nil {
		return nil, err
	}
	return p, p.Check([]api.QueueSpec{{Name: api.DefaultQueue, Quota: api.Unlimited}})
}

// Read reads a policy file that was found right before, and says what is wrong with its lines.
func Read(name, text string) (*Policy, error) { return read(name, text, nil) }

// read reads a policy file line by line; models are those that it may name, nil: not known.
func read(name, text string, models *knownModels) (*Policy, error) {
	p := &parser{Policy: &Policy{Name: name, Zone: "UTC", text: text}, zone: time.UTC, models: models}
	p.section = &p.Settings
	for text := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		p.line++
		comment := strings.HasPrefix(strings.TrimSpace(text), "#")
		words, err := fields(text)
		switch {
		case p.line > 1 && comment:
			err = nil
		case err != nil:
		case p.line == 1 && strings.Join(words, " ") != FormatLine:
			err = fmt.Errorf("the first line is %q: it must be %q", shortened(text), FormatLine)
		case p.line == 1 || len(words) == 0:
		default:
			err = p.take(words)
		}
		if err != nil {
			return nil, &Error{name, p.line, err}
		}
	}
	return p.Policy, p.whole()
}

// parser is a policy file on its way in.
type parser struct {
	*Policy
	line    int
	zone    *time.Location
	zoned   int       // line that names the zone
	dated   int       // last line with a date, which is in that zone
	section *Settings // that lines belong to
	window  *Window   // nil: before the first
	words   map[string]string
	lines   map[*Settings]map[string]int // of top and placement
	models  *knownModels                 // nil: not known
}

// take takes in one line: a word that says what it is, then a name, then words of the form key=value in any order.
func (p *parser) take(words []string) error {
	kind, words := words[0], words[1:]
	name := ""
	if len(words) > 0 && !strings.Contains(words[0], "=") {
		name, words = words[0], words[1:]
	}
	p.words = map[string]string{}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if _, twice := p.words[key]; twice || value == "" || key == "" {
			return fmt.Errorf("%q is not key=value with a key that comes once", shortened(word))
		}
		p.words[key] = value
	}
	kinds := map[string]func(string) error{
		"zone": p.takeZone, "top": p.takeTop, "backfill": p.takeBackfill, "half-life": p.takeHalfLife, "placement": p.takePlacement, "defragment": p.takeDefragment, "queue": p.takeQueue, "pool": p.takePool, "window": p.takeWindow,
	}
	take, ok := kinds[kind]
	if !ok {
		return fmt.Errorf("%q is no kind of line: write %s", shortened(kind), strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	if err := take(name); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(p.words)) {
		return fmt.Errorf("%s has no word %q: see the list of its words in docs/policy.md", kind, shortened(key))
	}
	return nil
}

// word takes a word of the line out.
func (p *parser) word(key string) (string, bool) {
	value, ok := p.words[key]
	delete(p.words, key)
	return value, ok
}

// once says that a kind of line stands twice in one section.
func (p *parser) once(kind string) error {
	if p.lines == nil {
		p.lines = map[*Settings]map[string]int{}
	}
	if p.lines[p.section] == nil {
		p.lines[p.section] = map[string]int{}
	}
	if line := p.lines[p.section][kind]; line > 0 {
		return fmt.Errorf("%s is said twice %s, in line %d and here: say it once", kind, p.where(), line)
	}
	p.lines[p.section][kind] = p.line
	return nil
}

// where is the section that a line belongs to, in words.
func (p *parser) where() string {
	if p.window == nil {
		return "before the first window"
	}
	return "in window " + p.window.Name
}

func (p *parser) takeZone(name string) error {
	if p.window != nil {
		return fmt.Errorf("the zone of all windows is named before the first of them: move this line up, or write zone= in a window's line")
	}
	if p.zoned > 0 {
		return fmt.Errorf("the zone is named twice, in line %d and here: name it once", p.zoned)
	}
	if p.dated > 0 {
		return fmt.Errorf("the zone is named after line %d, whose date is in it: move this line up", p.dated)
	}
	zone, err := loadZone(name)
	if err != nil {
		return err
	}
	p.zone, p.Zone, p.zoned = zone, name, p.line
	return nil
}

func loadZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, fmt.Errorf("there is no zone %q: name one, for example Europe/Berlin, America/New_York or UTC", shortened(name))
	}
	return zone, nil
}

func (p *parser) takeTop(order string) error {
	if err := p.once("top"); err != nil {
		return err
	}
	if order != "fair" && order != "one-line" {
		return fmt.Errorf("top %q: write fair, for the queues that are under none by their fair shares, or one-line", shortened(order))
	}
	p.section.OneLine = new(order == "one-line")
	return nil
}

func (p *parser) takeBackfill(by string) error {
	if err := p.once("backfill"); err != nil {
		return err
	}
	if by != "limits" && by != "predicted" {
		return fmt.Errorf("backfill %q: write limits, for work whose time limit is over before the first in line starts, or predicted, for preemptible work that is predicted to be over by then, too", shortened(by))
	}
	p.section.Predicted = new(by == "predicted")
	return nil
}

// takeHalfLife takes in after how long use counts half.
func (p *parser) takeHalfLife(text string) error {
	if err := p.once("half-life"); err != nil {
		return err
	}
	life, err := api.ParseDuration(text)
	if at := engine.Time(life / 1000); err != nil || at < engine.LeastHalfLife || at > engine.MostHalfLife {
		return fmt.Errorf("half-life %q: write a time from 1m to 365d after which what queues used counts half, for example 12h or 3d", shortened(text))
	}
	p.section.HalfLife = life
	return nil
}

func (p *parser) takePlacement(name string) error {
	if err := p.once("placement"); err != nil {
		return err
	}
	policy, named := place.Policy{Name: "of the policy file"}, true
	switch name {
	case "":
		named = false
	case "default":
		policy = place.Default()
	case "best_fit":
		policy = place.BestFit()
	default:
		return fmt.Errorf("there is no placement %q: write default or best_fit, or FEATURE=WEIGHT for each feature that counts", shortened(name))
	}
	if named == (len(p.words) > 0) {
		return fmt.Errorf("placement needs a name or the weights of features: write default, best_fit, or FEATURE=WEIGHT for each feature that counts")
	}
	for _, f := range place.Features() {
		text, ok := p.word(f.String())
		if !ok {
			continue
		}
		weight, err := strconv.ParseInt(text, 10, 32)
		if err != nil || weight < -place.MaxWeight || weight > place.MaxWeight {
			return fmt.Errorf("%s=%s: write a whole number from -%d to %d", f, shortened(text), place.MaxWeight, place.MaxWeight)
		}
		policy.Weights[f] = int32(weight)
	}
	for _, key := range slices.Sorted(maps.Keys(p.words)) {
		return fmt.Errorf("there is no feature %q: docs/policy.md has the list", shortened(key))
	}
	p.section.Placement, p.section.placed = &policy, p.line
	return nil
}

// shortened is a text as an error can say it.
func shortened(text string) string {
	const longest = 60
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}
