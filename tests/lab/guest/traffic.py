"""Traffic of the household, and the server it talks to.

traffic.py serve PORT
traffic.py household SERVER PORT upload|download FROM_S TO_S KBIT FLOWS

FLOWS > 0: so many TCP flows, greedy, or KBIT together. FLOWS = 0: one UDP flow of KBIT, counted in IP bytes.
"""

import socket
import struct
import sys
import threading
import time

HEADER = struct.Struct("!cIIf")  # what the client wants: u or d, bit/s (0: greedy), bytes a packet, seconds
UDP_PAYLOAD = 1172
UDP_HEADERS = 28
CHUNK = 32768


def main() -> None:
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        household(*sys.argv[2:])


def serve(port: int) -> None:
    threading.Thread(target=serve_udp, args=(port,), daemon=True).start()
    listener = socket.create_server(("", port), backlog=128)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_tcp, args=(connection,), daemon=True).start()


def serve_tcp(connection: socket.socket) -> None:
    try:
        want, bits, _, seconds = HEADER.unpack(connection.recv(HEADER.size, socket.MSG_WAITALL))
        if want == b"d":
            send(connection.send, CHUNK if not bits else 1448, bits, seconds)
        else:
            drain(connection)
    except (OSError, struct.error):
        pass
    finally:
        connection.close()


def serve_udp(port: int) -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", port))
    while True:
        packet, client = server.recvfrom(2048)
        if packet[:1] == b"d" and len(packet) == HEADER.size:
            _, bits, size, seconds = HEADER.unpack(packet)
            threading.Thread(target=send, args=(lambda data, to=client: server.sendto(data, to), size, bits, seconds), daemon=True).start()


def household(server: str, port: str, direction: str, from_s: str, to_s: str, kbit: str, flows: str) -> None:
    time.sleep(float(from_s))
    seconds = float(to_s) - float(from_s)
    address, bits = (server, int(port)), int(kbit) * 1000
    if int(flows) == 0:
        udp_flow(address, direction, bits, seconds)
        return
    share = bits // int(flows)
    threads = [threading.Thread(target=tcp_flow, args=(address, direction, share, seconds)) for _ in range(int(flows))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def tcp_flow(address: tuple, direction: str, bits: int, seconds: float) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(HEADER.pack(direction[:1].encode(), bits, 0, seconds))
        if direction == "upload":
            send(connection.send, CHUNK if not bits else 1448, bits, seconds)
        else:
            drain(connection)


def udp_flow(address: tuple, direction: str, bits: int, seconds: float) -> None:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(address)
    payload_bits = bits * UDP_PAYLOAD // (UDP_PAYLOAD + UDP_HEADERS)
    if direction == "upload":
        send(client.send, UDP_PAYLOAD, payload_bits, seconds)
    else:
        client.send(HEADER.pack(b"d", payload_bits, UDP_PAYLOAD, seconds))
        client.settimeout(seconds + 1)
        drain(client)


def send(write, size: int, bits: int, seconds: float) -> None:
    """Writes for so many seconds: as fast as it goes, or on a schedule that a late wake-up does not slow."""
    data, start, sent = bytes(size), time.monotonic(), 0
    while (now := time.monotonic() - start) < seconds:
        if bits and sent * 8 > now * bits:
            time.sleep(min(sent * 8 / bits - now, seconds))
            continue
        sent += write(data)


def drain(connection: socket.socket) -> None:
    while connection.recv(CHUNK * 2):
        pass


if __name__ == "__main__":
    main()
