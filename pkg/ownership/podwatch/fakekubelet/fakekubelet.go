// Package fakekubelet is the kubelet's Pods API for tests: a gRPC server on a Unix
// socket that behaves as that of Kubernetes 1.37 does (k8s.io/kubernetes
// pkg/kubelet/apis/pods), with the ways in which it fails.
//
// Like the kubelet's it says nothing of the claims that were made for a pod, it says
// DELETED when the containers of a pod have ended, and it goes on listing such a pod
// until it is removed.
package fakekubelet

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// watcherBuffer is how many events the kubelet keeps for a client before it drops it.
const watcherBuffer = 100

// Kubelet is a fake. Its methods may be called concurrently.
type Kubelet struct {
	podsapi.UnimplementedPodsServer
	socket string

	mu           sync.Mutex
	pods         map[types.UID]*corev1.Pod
	clients      map[chan *podsapi.WatchPodsEvent]bool
	initializing bool
	// hung is closed when the kubelet answers again; nil while it does.
	hung chan struct{}

	server *grpc.Server
	wg     sync.WaitGroup
}

// New returns a kubelet without pods that does not listen yet.
func New(socket string) *Kubelet {
	return &Kubelet{socket: socket, pods: map[types.UID]*corev1.Pod{}, clients: map[chan *podsapi.WatchPodsEvent]bool{}}
}

// Start listens on the socket. The pods are those of before.
func (k *Kubelet) Start() error {
	if err := os.RemoveAll(k.socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", k.socket)
	if err != nil {
		return err
	}
	k.server = grpc.NewServer()
	podsapi.RegisterPodsServer(k.server, k)
	k.wg.Go(func() { _ = k.server.Serve(listener) })
	return nil
}

// Stop ends all connections and removes the socket. It may be called again.
func (k *Kubelet) Stop() {
	if k.server != nil {
		k.Hang(false)
		k.server.Stop()
		k.wg.Wait()
		k.server = nil
	}
}

// Initialize says whether the kubelet does not know its pods yet.
func (k *Kubelet) Initialize(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.initializing = on
}

// Hang says whether calls wait. Connections stay open.
func (k *Kubelet) Hang(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case on && k.hung == nil:
		k.hung = make(chan struct{})
	case !on && k.hung != nil:
		close(k.hung)
		k.hung = nil
	}
}

// Set makes a pod one of the node's, or changes it, and says so.
func (k *Kubelet) Set(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	event := podsapi.EventType_MODIFIED
	if k.pods[pod.UID] == nil {
		event = podsapi.EventType_ADDED
	}
	k.pods[pod.UID] = ownStatus(pod)
	k.send(event, k.pods[pod.UID])
}

// SetSilently is Set where the event is lost.
func (k *Kubelet) SetSilently(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[pod.UID] = ownStatus(pod)
}

// Terminate ends a pod's containers.
func (k *Kubelet) Terminate(uid types.UID, phase corev1.PodPhase) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pod := k.pods[uid].DeepCopy()
	pod.Status.Phase = phase
	k.pods[uid] = pod
	k.send(podsapi.EventType_DELETED, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: uid}})
}

// Remove forgets a pod that was deleted in the API server. No event says so.
func (k *Kubelet) Remove(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, uid)
}

// Drop ends the watches of all clients, as the kubelet does with one that is slow.
func (k *Kubelet) Drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for client := range k.clients {
		delete(k.clients, client)
		close(client)
	}
}

// ownStatus is the pod with the status as the kubelet makes it.
func ownStatus(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status.ResourceClaimStatuses, pod.Status.ExtendedResourceClaimStatus = nil, nil
	return pod
}

// send tells all clients, and drops those that do not keep up. The caller holds k.mu.
func (k *Kubelet) send(event podsapi.EventType, pod *corev1.Pod) {
	data, err := pod.Marshal()
	for client := range k.clients {
		sent := false
		if err == nil {
			select {
			case client <- &podsapi.WatchPodsEvent{Type: event, Pod: data}:
				sent = true
			default:
			}
		}
		if !sent {
			delete(k.clients, client)
			close(client)
		}
	}
}

func (k *Kubelet) ready(ctx context.Context) error {
	k.mu.Lock()
	hung, initializing := k.hung, k.initializing
	k.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if initializing {
		return status.Error(codes.FailedPrecondition, "Kubelet is initializing")
	}
	return nil
}

func (k *Kubelet) list() ([][]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var pods []*corev1.Pod
	for _, pod := range k.pods {
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	var out [][]byte
	for _, pod := range pods {
		data, err := pod.Marshal()
		if err != nil {
			return nil, err
		}
		out = append(out, data)
	}
	return out, nil
}

// ListPods implements the API.
func (k *Kubelet) ListPods(ctx context.Context, _ *podsapi.ListPodsRequest) (*podsapi.ListPodsResponse, error) {
	if err := k.ready(ctx); err != nil {
		return nil, err
	}
	pods, err := k.list()
	return &podsapi.ListPodsResponse{Pods: pods}, err
}

// WatchPods implements the API.
func (k *Kubelet) WatchPods(_ *podsapi.WatchPodsRequest, stream grpc.ServerStreamingServer[podsapi.WatchPodsEvent]) error {
	if err := k.ready(stream.Context()); err != nil {
		return err
	}
	client := make(chan *podsapi.WatchPodsEvent, watcherBuffer)
	k.mu.Lock()
	k.clients[client] = true
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.clients, client)
	}()
	pods, err := k.list()
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if err := stream.Send(&podsapi.WatchPodsEvent{Type: podsapi.EventType_ADDED, Pod: pod}); err != nil {
			return err
		}
	}
	if err := stream.Send(&podsapi.WatchPodsEvent{Type: podsapi.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case event, ok := <-client:
			if !ok {
				return status.Error(codes.ResourceExhausted, "watch client channel closed")
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}
