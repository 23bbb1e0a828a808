package sim

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/divide"
)

// fullSpeed is the speed of a program that has a device for itself, and the whole of what it keeps of that beside others.
const fullSpeed = 1_000_000

// slowest is what a program keeps beside a neighbour at the least where no pair of them was measured.
const slowest = fullSpeed / 100

// Interference is how programs slow each other that run on one device, beyond what dividing its time explains.
//
// What a program keeps of its speed beside another is the speed measured of the pair, over what an equal division of the device's time
// between the two would leave it; at most 1, for what is measured above that is noise or what only programs without limits take. Where a
// pair was not measured, the loss is in proportion to the part of the device that the neighbour keeps busy, by a factor that is
// fitted (least squares through the origin) to the pairs whose first program keeps as much of a device busy, in quarters of a device.
// Beside several neighbours the parts multiply: that was not measured.
type Interference struct {
	programs []Program        // as they are listed
	known    map[string]int   // in programs, by name
	kept     map[[2]int]int64 // of pairs that were measured, what the first keeps beside the second, in millionths
	slope    [4]float64       // loss of its speed beside a neighbour that keeps all of the device busy, by quarter of what the program itself does
}

// Program is what was measured of a program with a device of its own.
type Program struct {
	Name   string    // MODEL/DATASET/BATCHSIZE/AMP
	Busy   api.Milli // what it keeps busy of the device, 1 to 1000
	Memory api.Bytes
}

// aloneFile is the file of programs alone, beside that of pairs.
const aloneFile = "single_data.csv"

// ReadInterference reads pairs of programs on one device as they were measured with Lucid (ASPLOS'23), and from the file single_data.csv beside it
// what each does alone.
func ReadInterference(path string) (*Interference, error) {
	x := newInterference()
	if err := readTable(filepath.Join(filepath.Dir(path), aloneFile), x.alone); err != nil {
		return nil, err
	}
	pairs := fitting{of: x}
	if err := readTable(path, pairs.pair); err != nil {
		return nil, err
	}
	return x, pairs.done(path)
}

func newInterference() *Interference {
	return &Interference{known: map[string]int{}, kept: map[[2]int]int64{}}
}

// decimal is a number from least to most.
func (r row) decimal(name string, least, most float64) (float64, error) {
	if _, ok := r.head[name]; !ok {
		return 0, fmt.Errorf("the table has no column %s: it needs one", name)
	}
	v, err := strconv.ParseFloat(r.text(name), 64)
	if err != nil || !(v >= least && v <= most) {
		return 0, fmt.Errorf("%s is %q: it must be a number from %g to %g", name, r.text(name), least, most)
	}
	return v, nil
}

// program is the name of the program in the columns that end so.
func (r row) program(suffix string) string {
	return strings.Join([]string{r.text("model" + suffix), r.text("dataset" + suffix), r.text("batchsize" + suffix), r.text("amp" + suffix)}, "/")
}

func (x *Interference) alone(r row) error {
	busy, err := r.decimal("gpu_util", 0, 100)
	if err != nil {
		return err
	}
	memory, err := r.decimal("gmem", 0, 1<<30) // MiB
	if err != nil {
		return err
	}
	return x.add(Program{Name: r.program(""), Busy: max(1, api.Milli(math.Round(busy*10))), Memory: api.Bytes(memory * (1 << 20))})
}

func (x *Interference) add(p Program) error {
	if _, ok := x.known[p.Name]; ok {
		return fmt.Errorf("program %s is listed twice: list it once", p.Name)
	}
	x.known[p.Name] = len(x.programs)
	x.programs = append(x.programs, p)
	return nil
}

// fitting is an interference on its way in, with the sums that its rule is fitted by.
type fitting struct {
	of         *Interference
	loss, norm [4]float64 // Σ loss × busy and Σ busy² of the neighbours, by quarter
	pairs      int
}

// fastest is by how much a program may run faster beside another than alone and be believed.
const fastest = 10

func (f *fitting) pair(r row) error {
	var speed [2]float64
	var at [2]int
	for i, suffix := range []string{"1", "2"} {
		v, err := r.decimal("speed"+suffix, 0, fastest)
		if err != nil {
			return err
		}
		name := r.program(suffix)
		k, ok := f.of.known[name]
		if !ok {
			return fmt.Errorf("program %s is not in %s: that needs a line of what it does alone", name, aloneFile)
		}
		speed[i], at[i] = v, k
	}
	f.pairs++
	a, b := f.of.programs[at[0]].Busy, f.of.programs[at[1]].Busy
	f.measured(at[0], at[1], a, b, speed[0])
	f.measured(at[1], at[0], b, a, speed[1])
	return nil
}

// measured notes how fast a program that keeps so much of a device busy ran beside another.
func (f *fitting) measured(program, neighbour int, busy, beside api.Milli, speed float64) {
	got := divide.Divide(int64(api.WholeDevice), []divide.Share{
		{Ceiling: int64(api.WholeDevice), Weight: 1, Demand: int64(busy)}, {Ceiling: int64(api.WholeDevice), Weight: 1, Demand: int64(beside)},
	})
	kept := min(1, speed*float64(busy)/float64(got[0]))
	f.of.kept[[2]int{program, neighbour}] = max(1, int64(math.Round(kept*fullSpeed)))
	part := float64(beside) / float64(api.WholeDevice)
	f.loss[quarter(busy)] += (1 - kept) * part
	f.norm[quarter(busy)] += part * part
}

// quarter is in which quarter of a device a part of it is.
func quarter(busy api.Milli) int { return min(3, int(busy)*4/int(api.WholeDevice)) }

// done fits the rule for pairs that were not measured; a quarter of which no program was measured gets the rule of all.
func (f *fitting) done(path string) error {
	if f.pairs == 0 {
		return fmt.Errorf("%s has no pairs: it needs at least one line under its headings", path)
	}
	var loss, norm float64
	for q := range f.loss {
		loss, norm = loss+f.loss[q], norm+f.norm[q]
	}
	for q := range f.loss {
		if f.norm[q] > 0 {
			f.of.slope[q] = f.loss[q] / f.norm[q]
		} else {
			f.of.slope[q] = loss / norm
		}
	}
	return nil
}

// Programs are those of which is known what they do alone, in the order in which they are listed.
func (x *Interference) Programs() []Program { return x.programs }

// index is where a program is listed; -1: it is not.
func (x *Interference) index(name string) int {
	if i, ok := x.known[name]; ok {
		return i
	}
	return -1
}

// keeps is what a program keeps of its speed beside a neighbour, in millionths, 1 to 1000000. Programs are places in the list, -1 for one
// that is not listed; busy is what each would keep busy of the device now.
func (x *Interference) keeps(program, neighbour int, busy, beside api.Milli) int64 {
	if beside <= 0 {
		return fullSpeed
	}
	if program >= 0 && neighbour >= 0 {
		if kept, ok := x.kept[[2]int{program, neighbour}]; ok {
			return kept
		}
	}
	loss := x.slope[quarter(busy)] * float64(beside) / float64(api.WholeDevice)
	return max(slowest, int64(math.Round((1-loss)*fullSpeed)))
}

// madePrograms are the programs of the built-in generator: how much of a device they keep busy, in thousandths, and their memory in GiB. They are
// made up, in the manner of a company whose trainers keep half of a device busy.
var madePrograms = []struct{ busy, memory int64 }{
	{980, 18}, {950, 12}, {870, 8}, {760, 6}, {640, 4}, {560, 12}, {470, 4}, {410, 3}, {340, 3}, {230, 6}, {120, 2}, {70, 8},
}

// madeSlope is what the programs of the built-in generator lose: half-busy ones the most, those that are always at the device the least.
var madeSlope = [4]float64{0.05, 0.12, 0.08, 0.02}

// MadeInterference is an interference without measurements, for when there is no file of them.
func MadeInterference() *Interference {
	x := newInterference()
	x.slope = madeSlope
	for i, p := range madePrograms {
		_ = x.add(Program{fmt.Sprintf("made-%02d", i), api.Milli(p.busy), api.Bytes(p.memory) << 30}) // no name comes twice
	}
	return x
}
