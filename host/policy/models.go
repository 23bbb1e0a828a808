package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Model finds the whole name of a model among those that are known: what was asked for may be a part of it, with letters of any size, or
// have the words behind it that `aliquot devices` prints behind the name of a simulated one. None: nothing known is like it; several: it is
// a part of each.
func Model(asked string, known []string) []string {
	part := strings.TrimSpace(strings.TrimSuffix(strings.ToLower(asked), "(simulated)"))
	if part == "" {
		return nil
	}
	var like []string
	for _, model := range known {
		switch has := strings.ToLower(model); {
		case has == part:
			return []string{model}
		case strings.Contains(has, part) && !slices.Contains(like, model):
			like = append(like, model)
		}
	}
	slices.Sort(like)
	return like
}

// For is the policy where devices of some models are all there are: each name of a model in it is the whole name of one of these. What is
// named that none of them is like, or several, is in wrong, each with its line, and stays as it is written. It fails where two words are
// about one model.
func (p *Policy) For(models []string) (of *Policy, wrong []error, err error) {
	known := &knownModels{all: slices.Compact(slices.Sorted(slices.Values(models)))}
	if of, err = read(p.Name, p.text, known); err != nil {
		return nil, nil, err
	}
	return of, known.wrong, nil
}

// knownModels are the models of all devices there are, and what names none of them.
type knownModels struct {
	all   []string
	wrong []error
}

// model is the whole name of a model that the file names, or the name as it is written where it is not known which.
func (p *parser) model(asked string) string {
	if !slices.Contains(p.Models, asked) {
		p.Models = append(p.Models, asked)
	}
	if p.models == nil {
		return asked
	}
	like := Model(asked, p.models.all)
	if len(like) == 1 {
		return like[0]
	}
	err := fmt.Errorf("model %s is a part of several names: write one of them, %s", shortened(asked), strings.Join(like, " or "))
	if len(like) == 0 {
		err = fmt.Errorf("no device is of model %s: name one of those there are (%s), or leave the word out", shortened(asked), strings.Join(p.models.all, ", "))
		if len(p.models.all) == 0 {
			err = fmt.Errorf("no device is of model %s, there are none: leave the word out until there are", shortened(asked))
		}
	}
	p.models.wrong = append(p.models.wrong, &Error{p.Name, p.line, err})
	return asked
}

// allModels are the whole names of models with commas between them.
func (p *parser) allModels(asked string) string {
	models := strings.Split(asked, ",")
	for i := range models {
		models[i] = p.model(models[i])
	}
	return strings.Join(models, ",")
}

// fields are the words of a line, between spaces. What is in double quotes is of one word, spaces and all, without the quotes.
func fields(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted, begun := false, false
	for _, r := range line {
		switch {
		case r == '"':
			quoted, begun = !quoted, true
		case !quoted && strings.ContainsRune(" \t\r\v\f", r):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("a name in quotes does not end: write a second \" after it")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

// written is a word as it is written, with names in quotes where they need them.
func written(key, value string) string {
	quoted := func(text, cut string) string {
		all := strings.Split(text, cut)
		for i, name := range all {
			if strings.ContainsAny(name, " \t") {
				all[i] = `"` + name + `"`
			}
		}
		return strings.Join(all, cut)
	}
	return quoted(key, "@") + "=" + quoted(value, ",")
}
