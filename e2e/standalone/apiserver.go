package standalone

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// apiServer is as much of an API server as the plugin needs: one node, its
// ResourceSlices and claims, in memory. All feature gates are on.
type apiServer struct {
	server *httptest.Server

	mu      sync.Mutex
	version int
	slices  map[string]*resourceapi.ResourceSlice
	claims  map[string][]byte // by name; encoded beforehand, as that is not what is measured
	written int
	watcher chan struct{}
	waiting []chan struct{}
}

func startAPIServer() *apiServer {
	a := &apiServer{
		version: 1, watcher: make(chan struct{}),
		slices: map[string]*resourceapi.ResourceSlice{}, claims: map[string][]byte{},
	}
	mux := http.NewServeMux()
	const group = "/apis/resource.k8s.io/v1"
	mux.HandleFunc("GET /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		reply(w, &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: r.PathValue("name"), UID: "node-uid"}})
	})
	mux.HandleFunc("GET "+group+"/namespaces/{namespace}/resourceclaims/{name}", a.getClaim)
	mux.HandleFunc("PATCH "+group+"/namespaces/{namespace}/resourceclaims/{name}/status", a.getClaim)
	mux.HandleFunc("GET "+group+"/resourceslices", a.listSlices)
	mux.HandleFunc("POST "+group+"/resourceslices", a.writeSlice)
	mux.HandleFunc("PUT "+group+"/resourceslices/{name}", a.writeSlice)
	mux.HandleFunc("DELETE "+group+"/resourceslices/{name}", a.deleteSlice)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "{}", http.StatusNotFound) })
	// One connection for all calls at once, as to a real server.
	a.server = httptest.NewUnstartedServer(mux)
	a.server.EnableHTTP2 = true
	a.server.StartTLS()
	return a
}

// kubeconfig is one for the server, which asks nobody who he is.
func (a *apiServer) kubeconfig() ([]byte, error) {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: a.server.URL, CertificateAuthorityData: authority}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	})
}

func (a *apiServer) stop() {
	close(a.watcher)
	a.server.CloseClientConnections()
	a.server.Close()
}

// encode gives an object in protobuf, as a real server does to the clients of
// client-go.
func encode(object runtime.Object) ([]byte, error) {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, object.GetObjectKind().GroupVersionKind().GroupVersion())
	return runtime.Encode(encoder, object)
}

func reply(w http.ResponseWriter, object runtime.Object) {
	data, err := encode(object)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	send(w, data)
}

func send(w http.ResponseWriter, data []byte) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_, _ = w.Write(data)
}

// putClaim makes the claim one that the plugin can get.
func (a *apiServer) putClaim(claim *resourceapi.ResourceClaim) error {
	data, err := encode(claim)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claims[claim.Name] = data
	return nil
}

func (a *apiServer) getClaim(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	claim := a.claims[r.PathValue("name")]
	a.mu.Unlock()
	if claim == nil {
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound)
		return
	}
	send(w, claim)
}

// devices lists the published devices in the order of publishing.
func (a *apiServer) devices() []resourceapi.Device {
	a.mu.Lock()
	defer a.mu.Unlock()
	var devices []resourceapi.Device
	for _, slice := range a.inOrder() {
		devices = append(devices, slice.Spec.Devices...)
	}
	return devices
}

// inOrder lists the slices by name, which is the order of publishing. The caller
// holds the lock.
func (a *apiServer) inOrder() []resourceapi.ResourceSlice {
	var list []resourceapi.ResourceSlice
	for _, slice := range a.slices {
		list = append(list, *slice)
	}
	slices.SortFunc(list, func(a, b resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (a *apiServer) writes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.written
}

// synced returns a channel that is closed when the plugin has listed the slices
// and all that it says there are exist.
func (a *apiServer) synced() <-chan struct{} {
	done := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = append(a.waiting, done)
	return done
}

// tell closes the channels of those that wait, if the pool is complete. The
// caller holds the lock.
func (a *apiServer) tell() {
	for _, slice := range a.slices {
		if int(slice.Spec.Pool.ResourceSliceCount) == len(a.slices) {
			for _, done := range a.waiting {
				close(done)
			}
			a.waiting = nil
			return
		}
	}
}

func (a *apiServer) listSlices(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		w.WriteHeader(http.StatusOK)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		if r.URL.Query().Get("sendInitialEvents") != "" {
			return // Not supported: the client lists instead.
		}
		a.mu.Lock()
		a.tell()
		a.mu.Unlock()
		select {
		case <-a.watcher:
		case <-r.Context().Done():
		}
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	reply(w, &resourceapi.ResourceSliceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSliceList"},
		ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(a.version)},
		Items:    a.inOrder(),
	})
}

func (a *apiServer) writeSlice(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	slice, ok := object.(*resourceapi.ResourceSlice)
	if err != nil || !ok {
		http.Error(w, fmt.Sprintf("not a ResourceSlice: %v", err), http.StatusBadRequest)
		return
	}
	slice.Kind, slice.APIVersion = "ResourceSlice", "resource.k8s.io/v1"
	a.mu.Lock()
	defer a.mu.Unlock()
	if slice.Name == "" {
		slice.Name = fmt.Sprintf("%s%d", slice.GenerateName, a.version+1)
	}
	if slices.Contains(r.URL.Query()["dryRun"], metav1.DryRunAll) {
		reply(w, slice) // What would be kept: all of it.
		return
	}
	a.version++
	a.written++
	slice.UID, slice.ResourceVersion = types.UID(slice.Name), fmt.Sprint(a.version)
	a.slices[slice.Name] = slice
	a.tell()
	reply(w, slice)
}

func (a *apiServer) deleteSlice(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written++
	delete(a.slices, r.PathValue("name"))
	reply(w, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}
