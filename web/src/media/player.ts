// Plays the sound of a trace. The position advances with the clock of the audio hardware.
import { useEffect, useRef, useState } from "preact/hooks";
import { source } from "../api";

export interface Player {
  available: boolean;
  position: number | null; // in seconds; null: not playing
  error: string;
  toggle: () => void;
}

/** A player for the sound with this id; unavailable if there is none. */
export function usePlayer(id: string): Player {
  const [position, setPosition] = useState<number | null>(null);
  const [error, setError] = useState("");
  const stop = useRef<() => void>(() => {});
  useEffect(() => {
    setError("");
    return () => stop.current();
  }, [id]);
  const play = async (): Promise<void> => {
    const context = new AudioContext();
    stop.current = () => {
      stop.current = () => {};
      void context.close();
      setPosition(null);
    };
    setPosition(0);
    try {
      const buffer = await context.decodeAudioData(await source.media(id));
      const node = new AudioBufferSourceNode(context, { buffer });
      node.connect(context.destination);
      const begin = context.currentTime;
      const advance = (): void => {
        if (context.state === "closed") return;
        setPosition(context.currentTime - begin);
        if (context.currentTime - begin < buffer.duration) requestAnimationFrame(advance);
        else stop.current();
      };
      node.start();
      advance();
    } catch (failure) {
      stop.current();
      const isUnknownFormat = (failure as Error).name === "EncodingError";
      setError(isUnknownFormat ? "The browser cannot play this kind of file." : (failure as Error).message);
    }
  };
  return {
    available: id !== "" && source.hasMedia,
    position,
    error,
    toggle: () => (position === null ? void play() : stop.current()),
  };
}
