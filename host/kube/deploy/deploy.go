// Package deploy renders the chart, deploy/chart of the repository, as Helm does: for tests, which install what users install, and for
// machines without Helm (command render). What comes in is the chart's folder and values; what goes out are the objects in the order in
// which they are to be made. It talks to no cluster, and the chart is the only place where these objects are written down.
package deploy

import (
	"fmt"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/yaml"
)

// Chart is a chart that was read.
type Chart struct{ chart *chart.Chart }

// Read reads a chart's folder.
func Read(folder string) (Chart, error) {
	read, err := loader.LoadDir(folder)
	if err != nil {
		return Chart{}, fmt.Errorf("read the chart in %s: %w", folder, err)
	}
	return Chart{read}, nil
}

// Object is one object of a rendered chart.
type Object struct {
	Template string // that it is from, without the chart's name
	Kind     string
	Name     string
	YAML     string
}

// kubeVersion is the Kubernetes that a chart is rendered for where none is asked: that of this module.
const kubeVersion = "v1.36.3"

// Render is what Helm would install with these values, which are laid over the chart's own, in Helm's order of kinds, in a cluster that serves these versions
// beside Kubernetes' own, as monitoring.coreos.com/v1. Values that the chart's schema does not accept are an error, as is what a template requires and was not given.
func (c Chart) Render(values map[string]any, versions ...string) ([]Object, error) {
	version, err := chartutil.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, err
	}
	if !chartutil.IsCompatibleRange(c.chart.Metadata.KubeVersion, version.Version) {
		return nil, fmt.Errorf("render the chart: it is for Kubernetes %s, not %s", c.chart.Metadata.KubeVersion, version.Version)
	}
	able := chartutil.DefaultCapabilities.Copy()
	able.KubeVersion, able.APIVersions = *version, append(able.APIVersions, versions...)
	all, err := chartutil.ToRenderValues(c.chart, values, chartutil.ReleaseOptions{Name: "aliquot", Namespace: "default", Revision: 1, IsInstall: true}, able)
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w", err)
	}
	files, err := engine.Render(c.chart, all)
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w", err)
	}
	for name := range files {
		if strings.HasSuffix(name, ".txt") || strings.HasSuffix(name, ".tpl") {
			delete(files, name)
		}
	}
	_, manifests, err := releaseutil.SortManifests(files, able.APIVersions, releaseutil.InstallOrder)
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w", err)
	}
	var objects []Object
	for _, one := range manifests {
		var head struct{ Metadata struct{ Name string } }
		if err := yaml.Unmarshal([]byte(one.Content), &head); err != nil {
			return nil, fmt.Errorf("render %s: %w", one.Name, err)
		}
		_, template, _ := strings.Cut(one.Name, "/templates/")
		objects = append(objects, Object{Template: template, Kind: one.Head.Kind, Name: head.Metadata.Name, YAML: one.Content})
	}
	return objects, nil
}

// Stream is one YAML stream of these objects.
func Stream(objects []Object) []byte {
	var all strings.Builder
	for _, one := range objects {
		fmt.Fprintf(&all, "---\n%s\n", strings.TrimSpace(one.YAML))
	}
	return []byte(all.String())
}

// Image is the name of the image that the chart runs by default.
func (c Chart) Image() string { return c.ImageOf(c.chart.Metadata.AppVersion) }

// ImageOf is the name of the image that the chart runs with this tag (image.tag).
func (c Chart) ImageOf(tag string) string {
	image, _ := c.chart.Values["image"].(map[string]any)
	return fmt.Sprintf("%v:%s", image["repository"], tag)
}
