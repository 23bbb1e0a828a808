package sim

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/models"
)

// Openb is Alibaba's trace of a GPU cluster (2023), as files of nodes and pods with a line of headings.
//
// A pod that wants no GPU is a workload with a share of no floor on one device: it takes CPU and memory of the node and nothing of
// the device. A pod's allowed models are a feasibility class.
type Openb struct {
	Nodes []engine.NodeSet
	Pods  []Job // by name, as they came in the trace
	model map[string]string
}

// maxMemory is the most memory of a node, in MiB.
const maxMemory = 1 << 40

// openbNodes is the file of nodes beside the pod lists.
const openbNodes = "openb_node_list_gpu_node.csv"

// OpenbLists are the pod lists in a folder by the names they are asked for with: default, cpu100 and so on.
func OpenbLists(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "openb_pod_list_*.csv"))
	if err != nil {
		return nil, fmt.Errorf("look for pod lists in %s: %w", folder, err)
	}
	var lists []string
	for _, f := range files {
		lists = append(lists, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "openb_pod_list_"), ".csv"))
	}
	return lists, nil
}

// ReadOpenb reads the nodes and a pod list of a folder.
func ReadOpenb(folder, list string) (*Openb, error) {
	o := &Openb{model: map[string]string{}}
	if err := readTable(filepath.Join(folder, openbNodes), o.node); err != nil {
		return nil, err
	}
	if err := readTable(filepath.Join(folder, "openb_pod_list_"+list+".csv"), o.pod); err != nil {
		return nil, err
	}
	slices.SortStableFunc(o.Pods, func(a, b Job) int { return strings.Compare(a.ID, b.ID) })
	return o, nil
}

// row is a line of a table: its fields by heading.
type row struct {
	head   map[string]int
	fields []string
}

// text is a field, empty where the table has no such column.
func (r row) text(name string) string {
	if i, ok := r.head[name]; ok {
		return r.fields[i]
	}
	return ""
}

// number is a whole number that is not negative.
func (r row) number(name string) (int64, error) {
	if _, ok := r.head[name]; !ok {
		return 0, fmt.Errorf("the table has no column %s: it needs one", name)
	}
	n, err := strconv.ParseInt(r.text(name), 10, 53)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is %q: it must be a whole number of at least 0", name, r.text(name))
	}
	return n, nil
}

// numbers are several of them.
func (r row) numbers(names ...string) ([]int64, error) {
	out := make([]int64, len(names))
	for i, name := range names {
		n, err := r.number(name)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

// readTable calls each for every line after the headings; what it finds wrong is said with file and line.
func readTable(path string, each func(row) error) error {
	file, err := os.Open(path) //nolint:gosec // the path is the user's own word
	if err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	defer func() { _ = file.Close() }()
	return scanTable(path, file, each)
}

func scanTable(name string, from io.Reader, each func(row) error) error {
	table := csv.NewReader(from)
	table.ReuseRecord = true
	r := row{head: map[string]int{}}
	for {
		fields, err := table.Read()
		if err == io.EOF {
			break
		}
		var broken *csv.ParseError
		switch {
		case errors.Is(err, csv.ErrFieldCount):
			line, _ := table.FieldPos(0)
			return fmt.Errorf("%s:%d: the count of its fields is %d, and that of the headings %d: write one for each, with commas between them", name, line, len(fields), table.FieldsPerRecord)
		case errors.As(err, &broken):
			return fmt.Errorf("%s:%d: the line cannot be read at its column %d: %w", name, broken.Line, broken.Column, broken.Err)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
		line, _ := table.FieldPos(0)
		if line == 1 {
			for i, f := range fields {
				r.head[f] = i
			}
			continue
		}
		r.fields = fields
		if err := each(r); err != nil {
			return fmt.Errorf("%s:%d: %w", name, line, err)
		}
	}
	if len(r.head) == 0 {
		return fmt.Errorf("%s: the file is empty: it needs a line of headings", name)
	}
	return nil
}

func (o *Openb) node(r row) error {
	n, err := r.numbers("cpu_milli", "memory_mib", "gpu")
	if err != nil {
		return err
	}
	name, model := r.text("sn"), r.text("model")
	traits, _ := models.Of(model)
	if name == "" || o.model[name] != "" || model == "" {
		return fmt.Errorf("node %q has no name, no model or is listed twice", name)
	}
	if n[2] > mostDevices || n[1] > maxMemory {
		return fmt.Errorf("node %q has %d GPUs and %d MiB of memory: at most %d and %d are taken", name, n[2], n[1], mostDevices, maxMemory)
	}
	set := engine.NodeSet{Node: strings.Clone(name), Resources: []engine.Resource{
		{Name: "cpu", Amount: n[0]}, {Name: "memory", Amount: n[1] << 20},
	}}
	for i := range int(n[2]) {
		set.Devices = append(set.Devices, engine.Device{
			UUID: name + "-" + strconv.Itoa(i), Index: i, Model: strings.Clone(model), Memory: api.Bytes(16) << 30, Health: api.Healthy, Traits: traits,
		})
	}
	o.Nodes = append(o.Nodes, set)
	o.model[set.Node] = strings.Clone(model)
	return nil
}

func (o *Openb) pod(r row) error {
	n, err := r.numbers("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
	if err != nil {
		return err
	}
	switch {
	case r.text("name") == "":
		return fmt.Errorf("the pod has no name")
	case n[3] > 1000 || n[2] > 1 && n[3] != 1000 || n[2] > 0 && n[3] == 0 || n[2] > engine.MaxDevices:
		return fmt.Errorf("pod %s wants %d GPUs of %d thousandths each: a part of one GPU or several whole ones", r.text("name"), n[2], n[3])
	}
	floor := api.Milli(n[3])
	if n[2] == 0 {
		floor = 0
	}
	job := Job{Workload: engine.Workload{
		ID: strings.Clone(r.text("name")), Class: api.Batch, Tasks: 1, Devices: max(1, int(n[2])),
		Share:       api.Share{Compute: api.Compute{Floor: floor, Ceiling: max(1, floor)}},
		Resources:   []engine.Resource{{Name: "cpu", Amount: n[0]}, {Name: "memory", Amount: n[1] << 20}},
		Feasibility: strings.Clone(r.text("gpu_spec")),
	}}
	if n[2] == 0 {
		job.Feasibility = ""
	}
	if r.text("creation_time") != "" && r.text("deletion_time") != "" {
		t, err := r.numbers("creation_time", "deletion_time")
		if err != nil {
			return err
		}
		job.Submit = engine.Time(t[0]) * 1_000_000
		job.Duration = max(1, engine.Time(t[1]-t[0])*1_000_000)
	}
	o.Pods = append(o.Pods, job)
	return nil
}

// classes say for each list of allowed models which nodes have one of them.
func (o *Openb) classes() []engine.Feasibility {
	seen := map[string]bool{"": true}
	var all []engine.Feasibility
	for i := range o.Pods {
		class := o.Pods[i].Feasibility
		if seen[class] {
			continue
		}
		seen[class] = true
		models := strings.Split(class, "|")
		f := engine.Feasibility{Class: class}
		for _, n := range o.Nodes {
			if slices.Contains(models, o.model[n.Node]) {
				f.Allowed = append(f.Allowed, n.Node)
			}
		}
		all = append(all, f)
	}
	return all
}

// Inflated is the protocol that FGD was measured with (Weng et al., USENIX ATC'23): the pods in a random order, and more drawn from
// among them, or some left out at random, until they want percent of the GPUs there are. They come one a second and never leave.
func (o *Openb) Inflated(seed uint64, percent int) *Trace {
	t := &Trace{Nodes: o.Nodes, Classes: o.classes()}
	want := t.Capacity() * int64(percent) / 100
	r := newRandom(seed)
	pods := slices.Clone(o.Pods)
	shuffle(r, pods)
	var sum int64
	for i := range pods {
		sum += pods[i].Compute()
	}
	for sum < want {
		p := o.Pods[r.below(len(o.Pods))]
		sum += p.Compute()
		pods = append(pods, p)
	}
	for sum > want {
		i := r.below(len(pods))
		sum -= pods[i].Compute()
		pods = slices.Delete(pods, i, i+1)
	}
	for i := range pods {
		pods[i].ID = strconv.Itoa(i)
		pods[i].Submit = engine.Time(i) * 1_000_000
		pods[i].Duration = 0
	}
	t.Jobs = pods
	return t
}
