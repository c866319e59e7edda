package podwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// maxMessage is the most bytes that the kubelet may send at once: all pods of a node,
// of which the largest takes 1.5 MiB (etcd's limit).
const maxMessage = 256 << 20

// followKubelet takes over what the kubelet says until it says no more, and returns
// why. It calls synced once it has all pods.
func (w *Watcher) followKubelet(ctx context.Context, synced func()) error {
	conn, err := grpc.NewClient("unix://"+w.PodsSocket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	impatient := time.AfterFunc(w.answer, func() {
		cancel(fmt.Errorf("it did not say within %s which pods there are", w.answer))
	})
	defer impatient.Stop()
	client := podsapi.NewPodsClient(conn)
	stream, err := client.WatchPods(ctx, &podsapi.WatchPodsRequest{})
	if err != nil {
		return reasonOf(ctx, err)
	}
	pods, err := receiveAll(stream)
	if err != nil {
		return reasonOf(ctx, err)
	}
	impatient.Stop()
	w.takeAll(pods)
	synced()
	w.changed()

	var rechecks sync.WaitGroup
	defer rechecks.Wait()
	defer cancel(nil)
	rechecks.Go(func() { cancel(w.recheckKubelet(ctx, client)) })
	for {
		event, err := stream.Recv()
		if err == nil {
			err = w.takeEvent(event)
		}
		if err != nil {
			return reasonOf(ctx, err)
		}
	}
}

// reasonOf is why a call failed, in as few words as possible.
func reasonOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errors.New("it ended the watch")
	}
	if s, ok := status.FromError(err); ok {
		return errors.New(s.Message())
	}
	return err
}

// receiveAll receives the pods that there are when a watch begins. In what follows,
// events that are older than that may be repeated.
func receiveAll(stream grpc.ServerStreamingClient[podsapi.WatchPodsEvent]) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for {
		event, err := stream.Recv()
		if err != nil || event.Type == podsapi.EventType_INITIAL_SYNC_COMPLETE {
			return pods, err
		}
		pod, err := decode(event.Pod)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
}

// takeAll takes over all pods that there are.
func (w *Watcher) takeAll(all []*corev1.Pod) {
	w.taking.Lock()
	defer w.taking.Unlock()
	pods := w.noteAll(all)
	w.names.retain(pods)
	w.kubelet.replace(pods)
}

// mergeAll takes over all pods as they were some time after the mark.
func (w *Watcher) mergeAll(mark uint64, all []*corev1.Pod) {
	w.taking.Lock()
	defer w.taking.Unlock()
	w.kubelet.merge(mark, w.noteAll(all))
	w.names.retain(w.kubelet.read().pods)
}

func (w *Watcher) noteAll(all []*corev1.Pod) podsByUID {
	pods := podsByUID{}
	for _, pod := range all {
		if mayHaveClaims(pod) {
			w.names.note(pod)
			pods[pod.UID] = prune(pod)
		}
	}
	return pods
}

// takeEvent takes over one change. The kubelet says DELETED once all containers of a
// pod have ended, also of one that stays in the API server as Succeeded or Failed.
func (w *Watcher) takeEvent(event *podsapi.WatchPodsEvent) error {
	if event.Type == podsapi.EventType_INITIAL_SYNC_COMPLETE {
		return nil
	}
	pod, err := decode(event.Pod)
	if err != nil {
		return err
	}
	w.taking.Lock()
	defer w.taking.Unlock()
	var now *corev1.Pod
	if event.Type != podsapi.EventType_DELETED && mayHaveClaims(pod) {
		w.names.note(pod)
		now = prune(pod)
	} else {
		w.names.forget(pod.UID)
	}
	if w.kubelet.set(pod.UID, now) {
		w.changed()
	}
	return nil
}

func decode(data []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(data); err != nil {
		return nil, fmt.Errorf("read a pod: %w", err)
	}
	if pod.UID == "" {
		return nil, errors.New("read a pod: it has no UID")
	}
	return pod, nil
}

// recheckKubelet asks for all pods from time to time, until ctx ends or there is no
// answer. The kubelet drops changes where it has too many to send, and says nothing
// of a pod that it refused and that was deleted then.
func (w *Watcher) recheckKubelet(ctx context.Context, client podsapi.PodsClient) error {
	again := time.NewTicker(w.recheck)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		mark := w.kubelet.mark()
		pods, err := w.listKubelet(ctx, client)
		switch code := status.Code(err); {
		case code == codes.ResourceExhausted:
			// Somebody else asks too often; the kubelet counts all together.
			klog.FromContext(ctx).V(2).Info("The kubelet was not asked for all pods", "reason", err)
			continue
		case code == codes.DeadlineExceeded:
			return fmt.Errorf("it does not answer within %s", w.answer)
		case err != nil:
			return errors.New(status.Convert(err).Message())
		}
		w.mergeAll(mark, pods)
		w.changed()
	}
}

func (w *Watcher) listKubelet(ctx context.Context, client podsapi.PodsClient) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, w.answer)
	defer cancel()
	response, err := client.ListPods(ctx, &podsapi.ListPodsRequest{})
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for _, data := range response.Pods {
		pod, err := decode(data)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}
