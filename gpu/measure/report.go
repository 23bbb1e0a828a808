package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// report is gpu.json.
type report struct {
	Command   []string          `json:"command"`
	Began     time.Time         `json:"began"`
	Seconds   float64           `json:"seconds"`
	Simulated bool              `json:"simulated"`
	Short     bool              `json:"short"`
	Machine   map[string]string `json:"machine"`
	Goals     []goal            `json:"goals"`
	Steps     []result          `json:"steps"`
}

// save writes the report for programs.
func (r *report) save(folder string) error {
	r.Goals = goals(r.Steps)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "gpu.json"), append(text, '\n'), 0o644)
}

// write writes the report twice: for programs and for people.
func (r *report) write(folder string) error {
	if err := r.save(folder); err != nil {
		return err
	}
	summary := r.summary()
	fmt.Print(summary)
	return os.WriteFile(filepath.Join(folder, "summary.txt"), []byte(summary), 0o644)
}

// summary is the report as text.
func (r *report) summary() string {
	var b strings.Builder
	where := "a real GPU"
	switch {
	case r.Simulated:
		where = "simulated devices, uncalibrated"
	case len(r.Steps) == 0 || r.Steps[0].Status != doneStatus:
		where = "a machine where it found no GPU that it could use"
	}
	fmt.Fprintf(&b, "Aliquot on %s, %s, %.0f s\ncommand: %s\n", where, r.Began.Format(time.RFC3339), r.Seconds, strings.Join(r.Command, " "))
	if r.Short {
		b.WriteString("A short run: its figures say that it runs, and nothing more.\n")
	}
	for _, key := range sorted(r.Machine) {
		fmt.Fprintf(&b, "%s: %s\n", key, r.Machine[key])
	}
	fmt.Fprintf(&b, "\nThe goals, judged by the worst of this run; the steps below say why what is missing was not measured:\n%s", goalTable(goals(r.Steps)))
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "\n%s: %s: %s", s.Part, s.Name, s.Status)
		if s.Why != "" {
			fmt.Fprintf(&b, ": %s", s.Why)
		}
		b.WriteByte('\n')
		for _, key := range sorted(s.Figures) {
			fmt.Fprintf(&b, "    %-38s %s\n", key, show(s.Figures[key]))
		}
	}
	return b.String()
}

// show is a figure as people read it.
func show(value any) string {
	if number, ok := value.(float64); ok {
		if number == float64(int64(number)) {
			return fmt.Sprintf("%.0f", number)
		}
		return fmt.Sprintf("%.3f", number)
	}
	if text, ok := value.(string); ok {
		return strings.ReplaceAll(text, "\n", "; ")
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
